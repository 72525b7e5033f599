/* SPDX-License-Identifier: Apache-2.0 */
/* A backend: the table of ops and of everything else that a device or the host does for the executor.
 *
 * The executor never asks which backend it has. tri_backend_create() fills the table: each op slot starts as one that
 * refuses by the op's name, the host's memory and copies are put over the other slots, then the chosen backend puts its
 * own there. So no op's slot is ever NULL, and an op that a backend lacks is never another backend's code on its
 * pointers. Of the others only graph_begin, graph_end, graph_refuse and tune may be NULL, where `records` or `tunes` is
 * false.
 *
 * Every op has two halves. `plan` runs on the host when shapes change: it looks only at the shape and type fields of
 * the arguments (never through a data pointer), chooses a kernel and says how much workspace that needs. It returns
 * TRI_INVALID_ARGUMENT where the arguments do not fit each other, TRI_UNSUPPORTED where the backend has no kernel for
 * them. `launch` enqueues the planned kernel on the compute stream with the actual pointers, allocates nothing and may
 * be captured into a graph. What goes wrong after a launch shows at the next event_query, event_wait or stream_sync.
 * The CPU backends execute inside launch. */
#ifndef TRI_KERNELS_BACKEND_H
#define TRI_KERNELS_BACKEND_H

#include "kernels/ops.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"

typedef struct tri_backend tri_backend;
struct tri_comm;        /* comm/comm.h */
struct tri_rows_config; /* kernels/expert_rows.h */
struct tri_tactics;     /* kernels/gemm_tactics.h */
struct tri_roofline;    /* kernels/roofline.h */
struct tri_random_fill; /* kernels/random.h */

/* Queues of a device. What is put on one runs in that order; between two only events say what comes first. Ops,
 * upload, download and copy_rows go to COMPUTE (or to the side stream: side_begin), upload_rows to COPY, what
 * a communicator of device memory sends to SEND, and peer_copy to PEER. A backend without `async` runs everything where
 * it is called. */
typedef enum tri_stream {
  TRI_STREAM_COMPUTE,
  TRI_STREAM_COPY,
  TRI_STREAM_SEND,
  TRI_STREAM_PEER,
  TRI_STREAM_COUNT
} tri_stream;

/* The events: STEP of steps in flight, SEND of what is to be sent, UPLOAD of copies, whose waiter sleeps; of weights
 * that are streamed (offload/stream.h) PIECE of their copies, PEER of those from other devices, ARRIVED and FREED of
 * their parts; of experts that come to the device (runtime/forward/hot_experts.h) HOT_PIECE of their copies, and HOT of
 * what must have ended before. */
enum {
  TRI_STEP_EVENTS = 2,
  TRI_UPLOAD_EVENTS = 8,
  TRI_PIECE_EVENTS = 32,
  TRI_PEER_EVENTS = 32,
  TRI_PART_EVENTS = 64,
  TRI_HOT_PIECE_EVENTS = 4,
  TRI_EVENT_STEP = 0,
  TRI_EVENT_SEND = TRI_EVENT_STEP + TRI_STEP_EVENTS,
  TRI_EVENT_PIECE,
  TRI_EVENT_PEER = TRI_EVENT_PIECE + TRI_PIECE_EVENTS,
  TRI_EVENT_ARRIVED = TRI_EVENT_PEER + TRI_PEER_EVENTS,
  TRI_EVENT_FREED = TRI_EVENT_ARRIVED + TRI_PART_EVENTS,
  TRI_EVENT_HOT = TRI_EVENT_FREED + TRI_PART_EVENTS,
  TRI_EVENT_HOT_PIECE,
  TRI_EVENT_UPLOAD = TRI_EVENT_HOT_PIECE + TRI_HOT_PIECE_EVENTS,
  TRI_EVENTS = TRI_EVENT_UPLOAD + TRI_UPLOAD_EVENTS
};

/* LAUNCH: the ops are to be launched one by one. RECORD: those launched until graph_end run there. REPLAY: they are
 * under way already. */
typedef enum tri_graph_mode { TRI_GRAPH_LAUNCH, TRI_GRAPH_RECORD, TRI_GRAPH_REPLAY } tri_graph_mode;

/* The purpose of a communicator of device memory: what it must do fast. SUMS: all_reduce. TRANSFERS: isend and recv,
 * which are not recorded then. ROWS: what comm_add_rows adds to it. */
typedef enum tri_comm_use { TRI_COMM_SUMS, TRI_COMM_TRANSFERS, TRI_COMM_ROWS } tri_comm_use;

/* Memory of a device as another process of the host finds it: what peer_show wrote, for peer_open. */
typedef struct tri_peer_handle {
  uint64_t words[8];
} tri_peer_handle;

/* For tune: a GEMM as a step launches it. gated: as the `up` of a gated_linear, with this glu. in_mlp: as the first
 * GEMM of a gated_mlp where gated, else as its second one. Those of one shape differ in their weights. */
typedef struct tri_tune_gemm {
  tri_linear_args args;
  bool gated, in_mlp;
  tri_glu_args glu;      /* gated or in_mlp */
  tri_linear_args other; /* in_mlp: the other GEMM */
} tri_tune_gemm;

/* A piece of the host's work in the order of a stream's. It stays where it is, as it is, until it has run, and as long
 * as a recorded step that has it is kept. run allocates and locks nothing and asks nothing of the backend; its context
 * is what lies around the call. */
typedef struct tri_host_call {
  tri_backend *backend; /* whose stream it is on: host_call sets it */
  tri_status (*run)(struct tri_host_call *call);
} tri_host_call;
#define TRI_HOST_CALL_FAILED "the host's part of a step failed: %s" /* be->failure of one that did */

typedef struct tri_tune_result {
  int shapes;   /* that there is a tactic for */
  int known;    /* of them: in the backend's tactics already */
  int measured; /* of the others; less than those where the time was up */
  double saved; /* sum over the measured shapes of the part of the default tactic's time that the fastest saves */
} tri_tune_result;

typedef struct tri_backend_ops {
#define X(op)                                                                                                          \
  tri_status (*op##_plan)(tri_backend * be, const tri_##op##_args *args, tri_op_plan *plan);                           \
  void (*op##_launch)(tri_backend * be, const tri_op_plan *plan, const tri_##op##_args *args);
  TRI_OP_LIST(X)
#undef X
  /* Device memory, zeroed on the compute stream; bytes are counted under the tag. TRI_NO_MEMORY: there is no room. */
  tri_status (*mem_alloc)(tri_backend *be, tri_mem_tag tag, size_t bytes, void **out);
  void (*mem_free)(tri_backend *be, tri_mem_tag tag, void *p, size_t bytes);
  /* Copies on the compute stream. An upload has read its source when it returns, unless that is pinned; what a
   * download writes to must stay until stream_sync. On the CPU both are memcpy. */
  void (*upload)(tri_backend *be, void *device, const void *host, size_t bytes);
  void (*download)(tri_backend *be, void *host, const void *device, size_t bytes);
  /* Waits for the compute stream. TRI_DEVICE_LOST or TRI_UNSUPPORTED: something that was launched failed, and
   * be->failure says what; nothing that came after it means anything. */
  tri_status (*stream_sync)(tri_backend *be);
  /* Has the host run a call after what the compute stream has, and what is put there later wait until it is done. A
   * call that returns something else than TRI_OK is a launch that failed. On the CPU it runs at once. */
  void (*host_call)(tri_backend *be, tri_host_call *call);
  /* Events order streams: event_record marks a point of a stream, and everything put on `stream` after stream_wait runs
   * after the last mark of that event. event_query returns TRI_OK when what lies before the mark is done, else
   * TRI_AGAIN; event_wait blocks the calling thread until then. Both return what stream_sync would where it failed. */
  void (*event_record)(tri_backend *be, int event, tri_stream stream);
  void (*stream_wait)(tri_backend *be, tri_stream stream, int event);
  tri_status (*event_query)(tri_backend *be, int event);
  tri_status (*event_wait)(tri_backend *be, int event);
  /* Lets the calling thread use upload_rows, peer_copy and the four above, too, concurrently with the one that uses
   * everything. */
  void (*join_thread)(tri_backend *be);
  /* Copies rows of `width` bytes, `pitch` bytes apart, inside the backend's memory, on the compute stream. */
  void (*copy_rows)(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                    size_t rows);
  /* The side stream: ops launched between side_begin and side_end come after those before side_begin, and
   * run concurrently with those after side_end until side_join; what follows that comes after both. Neither side may
   * write what the other one reads or writes. Uploads, downloads and calls of the host go there, too. On the CPU all
   * run in the order of their launches. */
  void (*side_begin)(tri_backend *be);
  void (*side_end)(tri_backend *be);
  void (*side_join)(tri_backend *be);
  /* Memory of the host that copies to and from the backend's go by themselves and at full speed: pinned, for a device.
   * Zeroed or not. TRI_NO_MEMORY where the system gives no more of it. */
  tri_status (*host_alloc)(tri_backend *be, size_t bytes, void **out);
  void (*host_free)(tri_backend *be, void *p, size_t bytes);
  /* Has whole pages that the caller has be as such memory, until host_unpin: those that several processes share, too.
   * TRI_NO_MEMORY as there. */
  tri_status (*host_pin)(tri_backend *be, void *p, size_t bytes);
  void (*host_unpin)(tri_backend *be, void *p);
  /* Copies rows of `width` bytes from host_alloc's memory, on the copy stream: the source is free again, and the rows
   * are there, after the next mark on it. On the CPU it is memcpy. */
  void (*upload_rows)(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t rows);
  /* Memory of mem_alloc's that processes of this host copy from, each to its own device: peer_show says what it is,
   * peer_open finds it in another process, and peer_copy, on the peer stream, copies bytes of it to this backend's
   * memory. The process that has shown it frees it when the others have closed it. TRI_UNSUPPORTED: they cannot. */
  tri_status (*peer_show)(tri_backend *be, void *p, tri_peer_handle *out);
  tri_status (*peer_open)(tri_backend *be, const tri_peer_handle *handle, void **out);
  void (*peer_close)(tri_backend *be, void *p);
  void (*peer_copy)(tri_backend *be, void *to, const void *from, size_t bytes);
  /* Made-up weights; see kernels/random.h. On the compute stream. */
  void (*fill_random)(tri_backend *be, const struct tri_random_fill *fill);
  /* Adds to *count, in the backend's memory, how many of the n elements at x, aligned to 16 bytes, are infinite or NaN.
   * On the compute stream. Types that have neither add nothing. */
  void (*count_not_finite)(tri_backend *be, const void *x, tri_dtype type, size_t n, uint64_t *count);
  /* Makes a communicator of the same ranks as host, which must outlive it, for buffers of this backend's memory;
   * collective over host. *out NULL on TRI_OK: host serves such buffers itself. */
  tri_status (*comm_create)(tri_backend *be, struct tri_comm *host, tri_comm_use use, struct tri_comm **out,
                            tri_error *err);
  /* Puts a communicator that has dispatch and combine of such rows, too, over *c, which it then owns, in its place;
   * collective over host, of whose ranks *c is. TRI_UNSUPPORTED, to all of them: a rank cannot, and *c stays. */
  tri_status (*comm_add_rows)(tri_backend *be, struct tri_comm *host, const struct tri_rows_config *rows,
                              struct tri_comm **c, tri_error *err);
  /* Steps of one key launch the same ops with the same arguments. graph_begin says what the caller is to do with this
   * one; after TRI_GRAPH_RECORD, graph_end follows in any case. TRI_OK: the step is kept, and has not run yet, which
   * the next graph_begin of the key sees to. TRI_AGAIN: there is no room for it. Only with `records`. */
  tri_graph_mode (*graph_begin)(tri_backend *be, uint64_t key);
  tri_status (*graph_end)(tri_backend *be);
  /* Forgets what is recorded, this step too, and keeps half as many from now on: on some rank there was no room. */
  void (*graph_refuse)(tri_backend *be);
  /* Forgets what is recorded: the memory and the communicators that it uses may go then. */
  void (*graph_drop)(tri_backend *be);
  /* Brings a batch's arrays to where the ops read them; *out is as *host with its pointers there, good until the next
   * batch of the same number. attentions [num_attentions]: all that will be asked of it, but for their batch and rows.
   * On the CPU a copy of the struct. */
  tri_status (*bind_batch)(tri_backend *be, int number, const tri_batch *host, const tri_attention_args *attentions,
                           int num_attentions, tri_batch *out);
  /* Makes room for the largest workspace that any plan asked for, and for ops on the side stream. Called
   * between plan and launch, only when one of them grew. */
  tri_status (*reserve)(tri_backend *be, size_t workspace, size_t of_side);
  /* Makes room for samples of so many rows with so many biases and banned ids and a mask each, so that none is made
   * later. */
  tri_status (*reserve_samples)(tri_backend *be, int rows, int edits, int vocab);
  /* Returns the bytes of memory that mem_alloc could give at most now, less what memory_utilization keeps free, and at
   * least 1; the host's where that is its memory. */
  int64_t (*mem_available)(tri_backend *be);
  /* Measures for each shape of the GEMMs that be->tactics has nothing for which tactic is the fastest, rotating over
   * the weights of all, and puts that into `out`. Writes to what the GEMMs write to, forgets recorded steps, and
   * begins nothing more when tri_now_ns() is `until`. No step may be under way. Only with `tunes`. */
  tri_status (*tune)(tri_backend *be, const tri_tune_gemm *gemms, int count, int64_t until, struct tri_tactics *out,
                     tri_tune_result *result);
  /* Returns whether the backend's GEMMs multiply weights of this form as they lie. */
  bool (*takes_form)(const tri_backend *be, tri_dtype dtype, tri_groups groups);
  /* Makes what measures what the backend could do at best. stream_bytes: size of the buffer that reads walk through,
   * several times the caches; a device chooses its own. type: of the weights that GEMMs are compared with; the
   * host's GEMMs are in single precision whatever it is. */
  tri_status (*roofline_create)(tri_backend *be, size_t stream_bytes, tri_dtype type, struct tri_roofline **out);
  void (*destroy)(tri_backend *be);
} tri_backend_ops;

enum { TRI_BOUND_BATCHES = 3 + 16 }; /* numbers for bind_batch are below this: whole batches, then chunks of one */

typedef struct tri_backend_config {
  const char *name;   /* "ref", "cpu", "cuda", or "auto": cuda where it can be had and do what is asked, else cpu */
  int device;         /* of cuda: which of the host's processes this is; with one visible device it is that one */
  bool deterministic; /* the same bits whatever the batch; a backend that cannot refuses */
  tri_pool *pool;     /* CPU threads; borrowed, NULL: the caller's thread alone */
  const char *isa; /* "amx", "avx512vbmi", "avx512", "avx2", "scalar": refuses where the processor lacks it; NULL: the
                      best it has */
  bool no_peer_memory; /* what goes between devices goes through the library alone, not through kernels of our own */
  double memory_utilization; /* of a device: share of its memory that may be in use; 0: all */
} tri_backend_config;

/* Ops with weights or caches of 16 bits or less that a device does with kernels for any shape, many times slower than
 * those that it has for usual ones. */
enum { TRI_GENERAL_ATTENTION = 1, TRI_GENERAL_EXPERTS = 2 };

enum { TRI_DEVICE_NAME = 48, TRI_TACTICS_KEY = 160 };

struct tri_backend {
  tri_backend_ops ops;
  const char *name;
  const char *isa; /* what the CPU code runs on ("avx2", "avx512", "scalar"), for logs and benchmarks */
  bool deterministic, no_peer_memory;
  double memory_utilization;
  bool host_memory;             /* what mem_alloc gives can be read and written by the caller */
  bool async;                   /* launches return before their work is done */
  bool records;                 /* steps can be recorded */
  bool tunes;                   /* GEMMs have several tactics, which tune measures */
  bool narrows_inputs;          /* GEMMs with 16-bit weights may round their inputs to that type, those with
                                   int8 weights to pairs of bf16 */
  bool narrow_activations;      /* see tri_mat */
  bool prefers_fp8;             /* FP8 weights are faster as they lie than widened */
  bool wide_blocks_only;        /* of those with blocks, such as tri_groups_are_wide has */
  int rounds_fp8_from;          /* rows from which GEMMs with weights of FP8 are faster where their rows are rounded,
                                   0: none */
  int rounds_fp8_experts_from;  /* the same of experts: rows of each, on average */
  int adds_in_place_from;       /* rows from which a GEMM that accumulates costs less than a norm's addition, 0:
                                   none */
  size_t bf16_sums_above;       /* bytes of a float32 all-reduce above which it is one of bfloat16 where activations
                                   are, 0: never */
  unsigned general;             /* TRI_GENERAL_* of what was planned so far; the caller may clear them */
  char failure[192];            /* why a plan was refused or a launch failed */
  tri_status failed;            /* of a launch, until the next stream_sync */
  char device[TRI_DEVICE_NAME]; /* tells its device from every other one, of any host; empty: it has none, as those
                                   below */
  int num_devices;              /* that this process sees; 0: not known, or the backend has none */
  char pci[24];                 /* the device's PCI address, as its driver writes it */
  char about[224];              /* the device in words, for the log */
  const char *lacks;            /* the kernels that other devices of its kind have and it has not, in words for a
                                   warning; NULL: it has all */
  struct tri_tactics *tactics;  /* how GEMMs are run, by shape: plans and launches look there; it is
                                   changed only while nothing is planned; NULL: there is only one tactic */
  char tactics_key[TRI_TACTICS_KEY]; /* the device and the library that tactics are good for, in printable ASCII */
  tri_pool *pool;
  size_t allocated[TRI_MEM_TAGS]; /* bytes now */
  uint64_t loaded; /* pieces of weights that have come from files, for who watches a start: read and changed with
                      __atomic functions, as C++ reads this header */
  void *workspace;
  size_t workspace_bytes;
  void *impl;   /* the backend's own state */
  void *module; /* the shared library that a backend came from */
};

/* Opens the backend of config->name: "cpu" (also for NULL), "cuda", "ref", or "auto", which is cuda where that can be
 * opened and config->deterministic is off, else cpu. The caller destroys *out. */
tri_status tri_backend_create(const tri_backend_config *config, tri_backend **out, tri_error *err);
void tri_backend_destroy(tri_backend *be); /* NULL is fine */

/* plan, reserve and launch in one go, for callers outside the step path (loading, tests). */
#define X(op) tri_status tri_run_##op(tri_backend *be, const tri_##op##_args *args);
TRI_OP_LIST(X)
#undef X

/* Backends' hooks: each puts its slots over those already there. */
/* Refuses every op by its name: plans with TRI_UNSUPPORTED, launches at the next stream_sync. */
void tri_backend_fill_unsupported(tri_backend *be);
void tri_backend_fill_ref(tri_backend *be);
tri_status tri_backend_fill_cpu(tri_backend *be, const char *isa, tri_error *err);
/* Returns prefers_fp8 of this host's "cpu" without making one. */
bool tri_cpu_prefers_fp8(void);
/* Loads the CUDA module, which is next to the program or in the library folder next to its own, and lets it put its
 * slots there. TRI_UNSUPPORTED with the reason where it is not there or cannot work here. */
tri_status tri_backend_load_cuda(tri_backend *be, int device, tri_error *err);

#endif
