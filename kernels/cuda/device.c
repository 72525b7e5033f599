/* SPDX-License-Identifier: Apache-2.0 */
/* The device: memory, copies, streams, and the errors that come late. Each function here fills a slot of
 * kernels/backend.h, which has its contract. Errors of the runtime are kept by tri_cuda_note and returned by the next
 * wait: a launch has no caller that could do anything about one. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gemm_tactics.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/timeline.h"
#include "kernels/cuda/fill.h"
#include "kernels/random.h"

enum { MIN_MAJOR = 8, ADDS_IN_PLACE_FROM = 17, ROUNDS_FP8_FROM = 65, ROUNDS_FP8_EXPERTS_FROM = 33 };
enum { BF16_SUMS_ABOVE = 8 << 20 }; /* more than steps of single tokens have: 256 rows of 8,192 */

/* ---- memory ---- */

static tri_status device_alloc(tri_backend *be, tri_mem_tag tag, size_t bytes, void **out) {
  size_t room = bytes ? bytes : 1;
  cudaError_t e = cudaMalloc(out, room);
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError(); /* it does not stick */
    return TRI_NO_MEMORY;
  }
  if (e == cudaSuccess) e = cudaMemsetAsync(*out, 0, room, tri_cuda_stream(be));
  tri_cuda_note(be, e);
  if (e != cudaSuccess) return TRI_DEVICE_LOST;
  be->allocated[tag] += bytes;
  return TRI_OK;
}

static void device_free(tri_backend *be, tri_mem_tag tag, void *p, size_t bytes) {
  if (!p) return;
  be->allocated[tag] -= bytes;
  tri_cuda_note(be, cudaFree(p));
}

/* The share that may be used is of the whole device: what other processes have of it counts as used. */
static int64_t device_available(tri_backend *be) {
  size_t available = 0, total = 0;
  tri_cuda_note(be, cudaMemGetInfo(&available, &total));
  int64_t left = (int64_t)available - (int64_t)((1 - be->memory_utilization) * (double)total);
  return left > 0 ? left : 1; /* 0 would mean that nothing is known */
}

/* The runtime copies pageable memory to its own buffer before it returns, which is the slot's contract. */
static void device_upload(tri_backend *be, void *device, const void *host, size_t bytes) {
  if (bytes) tri_cuda_note(be, cudaMemcpyAsync(device, host, bytes, cudaMemcpyDefault, tri_cuda_stream(be)));
}

static void device_download(tri_backend *be, void *host, const void *device, size_t bytes) {
  if (bytes) tri_cuda_note(be, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, tri_cuda_stream(be)));
}

static void device_copy_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                             size_t width, size_t rows) {
  if (width && rows)
    tri_cuda_note(be, cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDeviceToDevice,
                                        tri_cuda_stream(be)));
}

/* ---- pinned memory of the host, and copies from it ---- */

/* Ordinary pages that are then pinned: what a disk can write to by itself on every system. The driver's own are for
 * where it cannot pin others'. */
static tri_status device_host_alloc(tri_backend *be, size_t bytes, void **out) {
  (void)be;
  void *p = NULL;
  if (tri_pages_alloc(bytes, &p) == TRI_OK && cudaHostRegister(p, bytes, cudaHostRegisterDefault) == cudaSuccess) {
    *out = p;
    return TRI_OK;
  }
  tri_pages_free(p, bytes);
  cudaError_t e = cudaHostAlloc(out, bytes, cudaHostAllocDefault);
  cudaGetLastError(); /* neither refusal sticks */
  return e == cudaSuccess ? TRI_OK : TRI_NO_MEMORY;
}

static void device_host_free(tri_backend *be, void *p, size_t bytes) {
  (void)be;
  if (!p) return;
  if (cudaHostUnregister(p) == cudaSuccess) {
    tri_pages_free(p, bytes);
    return;
  }
  cudaGetLastError();
  cudaFreeHost(p); /* the driver's own */
}

static tri_status device_host_pin(tri_backend *be, void *p, size_t bytes) {
  (void)be;
  cudaError_t e = cudaHostRegister(p, bytes, cudaHostRegisterDefault);
  cudaGetLastError(); /* the refusal does not stick */
  return e == cudaSuccess ? TRI_OK : TRI_NO_MEMORY;
}

static void device_host_unpin(tri_backend *be, void *p) {
  (void)be;
  cudaHostUnregister(p);
  cudaGetLastError();
}

static void device_upload_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                               size_t width, size_t rows) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  if (!width || !rows) return;
  bool dense = rows == 1 || (to_pitch == width && from_pitch == width);
  tri_cuda_note(be,
                dense ? cudaMemcpyAsync(to, from, width * rows, cudaMemcpyHostToDevice, impl->streams[TRI_STREAM_COPY])
                      : cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyHostToDevice,
                                          impl->streams[TRI_STREAM_COPY]));
}

static void device_fill_random(tri_backend *be, const tri_random_fill *fill) {
  tri_cuda_fill_random(tri_cuda_stream(be), fill);
  tri_cuda_note(be, cudaGetLastError());
}

static void device_count_not_finite(tri_backend *be, const void *x, tri_dtype type, size_t n, uint64_t *count) {
  tri_cuda_count_not_finite(tri_cuda_stream(be), x, type, n, count);
  tri_cuda_note(be, cudaGetLastError());
}

/* FP8 is for Hopper's kernels. */
static bool device_takes_form(const tri_backend *be, tri_dtype dtype, tri_groups groups) {
  if (dtype == TRI_F8_E4M3) return tri_cuda_of(be)->is_hopper && tri_groups_are_wide(groups);
  return dtype <= TRI_I8 && groups.rows <= 1 && !groups.cols;
}

/* ---- what the host does in between ---- */

/* On a thread of the driver's, which may call nothing of it. */
static void CUDART_CB run_host_call(void *p) {
  tri_host_call *call = p;
  int none = TRI_OK, *failed = &tri_cuda_of(call->backend)->host_failed;
  tri_status st = call->run(call);
  if (st != TRI_OK) __atomic_compare_exchange_n(failed, &none, (int)st, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void device_host_call(tri_backend *be, tri_host_call *call) {
  call->backend = be;
  tri_cuda_note(be, cudaLaunchHostFunc(tri_cuda_stream(be), run_host_call, call));
}

/* ---- waiting ---- */

/* Errors of kernels show here, once; nothing that comes after one means anything. */
static tri_status status_of(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  if (be->failed != TRI_OK) return be->failed;
  tri_status of_host = (tri_status)__atomic_load_n(&impl->host_failed, __ATOMIC_RELAXED);
  if (of_host != TRI_OK) {
    if (!__atomic_exchange_n(&impl->told, 1, __ATOMIC_RELAXED) && !be->failure[0])
      snprintf(be->failure, sizeof be->failure, TRI_HOST_CALL_FAILED, tri_status_text(of_host));
    return of_host;
  }
  cudaError_t error = (cudaError_t)__atomic_load_n(&impl->error, __ATOMIC_RELAXED);
  if (error == cudaSuccess) return TRI_OK;
  if (!__atomic_exchange_n(&impl->told, 1, __ATOMIC_RELAXED) && !be->failure[0])
    snprintf(be->failure, sizeof be->failure, "device %d: %s (%s)", impl->device, cudaGetErrorString(error),
             cudaGetErrorName(error));
  return TRI_DEVICE_LOST;
}

static tri_status device_sync(tri_backend *be) {
  tri_cuda_note(be, cudaStreamSynchronize(tri_cuda_stream(be)));
  return status_of(be);
}

static void device_event_record(tri_backend *be, int event, tri_stream stream) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaEventRecord(impl->events[event], impl->streams[stream]));
}

static void device_stream_wait(tri_backend *be, tri_stream stream, int event) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaStreamWaitEvent(impl->streams[stream], impl->events[event], 0));
}

static tri_status device_event_query(tri_backend *be, int event) {
  cudaError_t e = cudaEventQuery(tri_cuda_of(be)->events[event]);
  if (e == cudaErrorNotReady) {
    cudaGetLastError(); /* it is no error */
    return TRI_AGAIN;
  }
  tri_cuda_note(be, e);
  return status_of(be);
}

/* The device is a thread's own choice in the runtime. */
static void device_join_thread(tri_backend *be) { tri_cuda_note(be, cudaSetDevice(tri_cuda_of(be)->device)); }

static tri_status device_event_wait(tri_backend *be, int event) {
  tri_cuda_note(be, cudaEventSynchronize(tri_cuda_of(be)->events[event]));
  return status_of(be);
}

/* ---- events and workspaces ---- */

static cudaError_t make_events(cudaEvent_t *events, int n) {
  cudaError_t e = cudaSuccess;
  for (int i = 0; i < n && e == cudaSuccess; i++) e = cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming);
  return e;
}

static void free_events(cudaEvent_t *events, int n) {
  for (int i = 0; i < n; i++)
    if (events[i]) cudaEventDestroy(events[i]);
}

/* Recorded steps have the old workspace's address. */
static tri_status grow_workspace(tri_backend *be, tri_cuda_lane *lane, size_t bytes) {
  void *p;
  if (bytes <= lane->workspace_bytes) return TRI_OK;
  TRI_CHECK(device_sync(be)); /* the old one is not used any more */
  TRI_CHECK(device_alloc(be, TRI_MEM_STAGING, bytes, &p));
  tri_cuda_graphs_drop(be);
  device_free(be, TRI_MEM_STAGING, lane->workspace, lane->workspace_bytes);
  lane->workspace = p;
  lane->workspace_bytes = bytes;
  return TRI_OK;
}

static tri_status device_reserve(tri_backend *be, size_t workspace, size_t of_side) {
  tri_cuda_lane *lanes = tri_cuda_of(be)->lanes;
  tri_status st = grow_workspace(be, &lanes[TRI_CUDA_MAIN], workspace);
  if (st == TRI_OK) st = grow_workspace(be, &lanes[TRI_CUDA_SIDE], of_side);
  be->workspace = lanes[TRI_CUDA_MAIN].workspace;
  be->workspace_bytes = lanes[TRI_CUDA_MAIN].workspace_bytes;
  return st;
}

/* Releases what open_device has made so far: each handle is NULL until then. */
static void close_device(tri_cuda_impl *impl) {
  for (int i = 0; i <= TRI_BOUND_BATCHES; i++) {
    if (impl->staging[i].host[0]) cudaFreeHost(impl->staging[i].host[0]);
    free_events(impl->staging[i].sent, 2);
  }
  free_events(impl->events, TRI_EVENTS);
  tri_cuda_blas_close(impl);
  tri_cuda_side_close(impl);
  if (impl->counters) cudaFree(impl->counters);
  for (int i = 0; i < TRI_STREAM_COUNT; i++)
    if (impl->streams[i]) cudaStreamDestroy(impl->streams[i]);
  tri_free(impl);
}

static void device_destroy(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  if (tri_cuda_stream(be)) cudaStreamSynchronize(tri_cuda_stream(be));
  tri_cuda_timeline_write();
  tri_cuda_graphs_drop(be);
  for (int i = 0; i < TRI_CUDA_LANES; i++)
    device_free(be, TRI_MEM_STAGING, impl->lanes[i].workspace, impl->lanes[i].workspace_bytes);
  for (int i = 0; i <= TRI_BOUND_BATCHES; i++)
    device_free(be, TRI_MEM_STAGING, impl->staging[i].device, impl->staging[i].device_bytes);
  close_device(impl);
  be->impl = NULL;
}

/* ---- opening ---- */

/* A device that is there and cannot be used has failed; another error would be the same on every device. */
static bool is_of_device(cudaError_t e) {
  return e == cudaErrorDevicesUnavailable || e == cudaErrorECCUncorrectable || e == cudaErrorNvlinkUncorrectable ||
         e == cudaErrorIllegalAddress || e == cudaErrorLaunchFailure || e == cudaErrorHardwareStackError;
}

static tri_status refuse(cudaError_t e, const char *what, tri_error *err) {
  return tri_fail(err, is_of_device(e) ? TRI_DEVICE_LOST : TRI_UNSUPPORTED, "backend", "backend cuda: %s: %s (%s)",
                  what, cudaGetErrorString(e), cudaGetErrorName(e));
}

/* Makes the counters at which a kernel's blocks meet. */
static cudaError_t make_counters(tri_cuda_impl *impl) {
  enum { OF_LANE = TRI_CUDA_SLABS + TRI_CUDA_QUEUES + TRI_CUDA_TOLD };
  size_t bytes = (TRI_CUDA_MEETINGS + TRI_CUDA_LANES * OF_LANE) * sizeof *impl->counters;
  cudaError_t e = cudaMalloc((void **)&impl->counters, bytes);
  if (e != cudaSuccess) return e;
  for (int i = 0; i < TRI_CUDA_LANES; i++) impl->lanes[i].slabs = impl->counters + TRI_CUDA_MEETINGS + i * OF_LANE;
  return cudaMemsetAsync(impl->counters, 0, bytes, impl->streams[TRI_STREAM_COMPUTE]);
}

static tri_status open_device(tri_cuda_impl *impl, tri_error *err) {
  struct cudaDeviceProp p;
  int driver = 0, runtime = 0, count = 0, least = 0, greatest = 0;
  cudaError_t e = cudaDriverGetVersion(&driver);
  if (e == cudaSuccess) e = cudaRuntimeGetVersion(&runtime);
  if (e != cudaSuccess) return refuse(e, "no version of the driver", err);
  if (!driver) return tri_fail(err, TRI_UNSUPPORTED, "backend", "backend cuda: no NVIDIA driver is installed");
  if (driver / 1000 < runtime / 1000)
    return tri_fail(err, TRI_UNSUPPORTED, "backend", "backend cuda: the driver knows CUDA %d.%d, this build needs %d",
                    driver / 1000, driver % 1000 / 10, runtime / 1000);
  e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess) return refuse(e, "no device", err);
  if (count == 1) impl->device = 0; /* the launcher has given each process its own */
  if (impl->device >= count)
    return tri_fail(err, TRI_UNSUPPORTED, "device",
                    "backend cuda: %d GPUs are visible, none is left for process %d of this host", count, impl->device);
  if ((e = cudaGetDeviceProperties(&p, impl->device)) != cudaSuccess) return refuse(e, "its properties", err);
  if (p.major < MIN_MAJOR)
    return tri_fail(err, TRI_UNSUPPORTED, "backend",
                    "device %d (%s) has compute capability %d.%d, at least %d.0 is needed", impl->device, p.name,
                    p.major, p.minor, MIN_MAJOR);
  impl->num_sms = p.multiProcessorCount;
  snprintf(impl->isa, sizeof impl->isa, "sm_%d%d", p.major, p.minor);
  e = cudaSetDevice(impl->device);
  if (e == cudaSuccess) impl->is_hopper = tri_cuda_is_hopper();
  /* Steps, and what the next stage waits for, come before what runs concurrently. */
  if (e == cudaSuccess) e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  for (int i = 0; i < TRI_STREAM_COUNT && e == cudaSuccess; i++)
    e = cudaStreamCreateWithPriority(&impl->streams[i], cudaStreamNonBlocking,
                                     i == TRI_STREAM_COPY || i == TRI_STREAM_PEER ? least : greatest);
  impl->lanes[TRI_CUDA_MAIN].stream = impl->streams[TRI_STREAM_COMPUTE];
  if (e == cudaSuccess) e = tri_cuda_side_open(impl);
  if (e == cudaSuccess) e = make_counters(impl);
  if (e == cudaSuccess) e = make_events(impl->events, TRI_EVENT_UPLOAD);
  /* A thread that waits for a copy sleeps: the cores are for conversions. */
  for (int i = TRI_EVENT_UPLOAD; i < TRI_EVENTS && e == cudaSuccess; i++)
    e = cudaEventCreateWithFlags(&impl->events[i], cudaEventDisableTiming | cudaEventBlockingSync);
  for (int i = 0; i <= TRI_BOUND_BATCHES && e == cudaSuccess; i++) e = make_events(impl->staging[i].sent, 2);
  return e == cudaSuccess ? TRI_OK : refuse(e, "cannot use the device", err);
}

/* Appends to the words about the device; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void say(tri_backend *be, const char *format, ...) {
  size_t at = strlen(be->about);
  va_list args;
  va_start(args, format);
  vsnprintf(be->about + at, sizeof be->about - at, format, args);
  va_end(args);
}

/* Devices that this one can read and write directly, among those that are visible. */
static int count_peers(int device, int count) {
  int peers = 0, can;
  for (int i = 0; i < count; i++)
    peers += i != device && cudaDeviceCanAccessPeer(&can, device, i) == cudaSuccess && can;
  return peers;
}

/* Which device it is. Nothing depends on it but threads' places and the log. */
static void describe(tri_backend *be) {
  const tri_cuda_impl *impl = tri_cuda_of(be);
  struct cudaDeviceProp p;
  int count = 0;
  if (cudaGetDeviceProperties(&p, impl->device) != cudaSuccess || cudaGetDeviceCount(&count) != cudaSuccess) return;
  be->num_devices = count;
  snprintf(be->tactics_key, sizeof be->tactics_key, "%.80s, sm_%d%d, %d SMs, cuBLASLt %zu", p.name, p.major, p.minor,
           p.multiProcessorCount, tri_cuda_matmul_version());
  const unsigned char *u = (const unsigned char *)p.uuid.bytes;
  int at = snprintf(be->device, sizeof be->device, "GPU-");
  for (int i = 0; i < 16; i++)
    at += snprintf(be->device + at, sizeof be->device - (size_t)at, "%s%02x",
                   i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
  if (cudaDeviceGetPCIBusId(be->pci, sizeof be->pci, impl->device) != cudaSuccess) be->pci[0] = 0;
  tri_cuda_facts f = tri_cuda_ask_driver(be->pci);
  say(be, "device %d: %s, %s, PCI %s, %.1f GiB", impl->device, p.name, be->device, be->pci,
      (double)p.totalGlobalMem / 0x1p30);
  if (f.driver[0]) say(be, ", driver %s", f.driver);
  if (f.pcie_generation && f.pcie_width) say(be, ", PCIe %u x%u", f.pcie_generation, f.pcie_width);
  if (f.links) say(be, ", %u NVLinks", f.links);
  if (count > 1) say(be, ", %d of %d peers within reach", count_peers(impl->device, count), count - 1);
}

__attribute__((visibility("default"))) tri_status tri_backend_fill_cuda(tri_backend *be, int device, tri_error *err) {
  if (be->deterministic)
    return tri_fail(err, TRI_UNSUPPORTED, "deterministic", "backend cuda cannot be deterministic yet");
  tri_cuda_impl *impl = tri_calloc(1, sizeof *impl);
  if (!impl) return tri_fail(err, TRI_NO_MEMORY, "backend", "no memory for backend cuda");
  impl->device = device;
  impl->most_graphs = TRI_CUDA_GRAPHS;
  tri_status st = open_device(impl, err);
  if (st == TRI_OK && tri_cuda_blas_open(impl) != TRI_OK)
    st = tri_fail(err, TRI_UNSUPPORTED, "backend", "backend cuda: cuBLAS cannot be initialised on device %d", device);
  if (st == TRI_OK && tri_tactics_create(&be->tactics) != TRI_OK)
    st = tri_fail(err, TRI_NO_MEMORY, "backend", "no memory for backend cuda");
  if (st != TRI_OK) {
    close_device(impl);
    return st;
  }
  be->impl = impl;
  be->isa = impl->isa;
  describe(be);
  be->ops.mem_alloc = device_alloc;
  be->ops.mem_free = device_free;
  be->ops.mem_available = device_available;
  be->ops.upload = device_upload;
  be->ops.download = device_download;
  be->ops.stream_sync = device_sync;
  be->ops.host_alloc = device_host_alloc;
  be->ops.host_pin = device_host_pin;
  be->ops.host_unpin = device_host_unpin;
  be->ops.host_free = device_host_free;
  be->ops.host_call = device_host_call;
  be->ops.event_record = device_event_record;
  be->ops.side_begin = tri_cuda_side_begin;
  be->ops.side_end = tri_cuda_side_end;
  be->ops.side_join = tri_cuda_side_join;
  be->ops.stream_wait = device_stream_wait;
  be->ops.event_query = device_event_query;
  be->ops.event_wait = device_event_wait;
  be->ops.join_thread = device_join_thread;
  be->ops.copy_rows = device_copy_rows;
  be->ops.upload_rows = device_upload_rows;
  be->ops.peer_show = tri_cuda_peer_show;
  be->ops.peer_open = tri_cuda_peer_open;
  be->ops.peer_close = tri_cuda_peer_close;
  be->ops.peer_copy = tri_cuda_peer_copy;
  be->ops.fill_random = device_fill_random;
  be->ops.count_not_finite = device_count_not_finite;
  be->ops.comm_create = tri_comm_device_create;
  be->ops.comm_add_rows = tri_comm_device_add_rows;
  be->ops.graph_begin = tri_cuda_graph_begin;
  be->ops.graph_end = tri_cuda_graph_end;
  be->ops.graph_refuse = tri_cuda_graph_refuse;
  be->ops.graph_drop = tri_cuda_graphs_drop;
  be->ops.bind_batch = tri_cuda_bind_batch;
  be->host_memory = false;
  be->async = be->records = be->tunes = true;
  be->narrows_inputs = be->narrow_activations = true;
  be->adds_in_place_from = ADDS_IN_PLACE_FROM;
  be->bf16_sums_above = BF16_SUMS_ABOVE;
  be->prefers_fp8 = tri_cuda_of(be)->is_hopper;
  be->wide_blocks_only = true;
  if (!tri_cuda_of(be)->is_hopper)
    be->lacks = "kernels for Hopper are off on this device: experts, int8/FP8 and prompts run on general kernels; "
                "unmeasured";
  be->rounds_fp8_from = tri_cuda_of(be)->is_hopper ? ROUNDS_FP8_FROM : 0;
  be->rounds_fp8_experts_from = tri_cuda_of(be)->is_hopper ? ROUNDS_FP8_EXPERTS_FROM : 0;
  be->ops.reserve = device_reserve;
  be->ops.reserve_samples = tri_cuda_reserve_samples;
  be->ops.tune = tri_cuda_tune;
  be->ops.takes_form = device_takes_form;
  be->ops.roofline_create = tri_cuda_roofline_create;
  be->ops.destroy = device_destroy;
  tri_cuda_fill_ops(be);
  return TRI_OK;
}
