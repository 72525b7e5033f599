/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/net/sockets.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/wire/client.h"
#include "comm/wire/endpoint.h"
#include "base/mem.h"

enum {
  CLIENT_BACKLOG = 1000,  /* messages that one client may leave unread before it counts as slow */
  CLIENT_AHEAD = 16,      /* requests of one client that wait here; what it sends beyond them waits at its side */
  WORKER_BACKLOG = 65536, /* messages that wait for one leader; jobs beyond them stay in the queue */
};

tri_status tri_client_socket_open(const tri_serve_options *o, tri_zcontext *z, tri_allowed_keys *allowed,
                                  tri_zserver **out, tri_error *err) {
  char endpoint[TRI_ENDPOINT_BYTES];
  tri_zkeypair pair;
  TRI_CHECK(tri_endpoint_resolve(o->endpoint, endpoint, err));
  tri_zserver_config zc = {.endpoint = endpoint,
                           .insecure_tcp = o->insecure_tcp,
                           .max_message = TRI_WIRE_MAX_MESSAGE,
                           .backlog = CLIENT_BACKLOG,
                           .receive_backlog = CLIENT_AHEAD,
                           .watch = true};
  if (!strncmp(endpoint, "tcp://", 6) && !o->key_file && !o->insecure_tcp)
    return tri_fail(
        err, TRI_USAGE, "endpoint",
        "%s without keys would let anybody in: --key-file (trireme keygen FILE makes one) and --allowed-keys "
        "(a file of the clients' public keys)",
        endpoint);
  if (o->key_file) {
    TRI_CHECK(tri_zkeypair_load(o->key_file, &pair, err));
    zc.curve = &pair;
    if (!o->allowed_keys)
      return tri_fail(err, TRI_USAGE, "allowed_keys",
                      "--key-file needs --allowed-keys with a file that names at least one client's public key");
    TRI_CHECK(tri_allowed_keys_read(o->allowed_keys, allowed, err));
    tri_allowed_keys_add_own(allowed, pair.public_key);
    zc.allowed = allowed->list;
    zc.num_allowed = allowed->count;
  }
  return tri_zserver_open(z, &zc, out, err);
}

/* Finds the keys of the workers' socket and those of the ranks, and its address where it has one already: those of a
 * start that has left its boot file, as one that was killed does, so that its workers find this coordinator at the same
 * address; or new ones. The keys are written before the boot file: where that is, the keys are as well. */
static tri_status find_worker_keys(const tri_serve_options *o, const tri_rank_keys *keys, tri_boot *boot,
                                   tri_zkeypair *pair, tri_error *err) {
  if (!keys->texts && o->worker_key_file && o->boot_file && !access(o->boot_file, F_OK)) {
    TRI_CHECK(tri_boot_load(o->boot_file, 0, boot, err));
    if (boot->first_replica || boot->replicas != keys->replicas || boot->ranks != keys->ranks)
      return tri_fail(err, TRI_CORRUPT, "boot_file", "%s has keys for %u replicas of %u ranks, not for %u of %u",
                      o->boot_file, boot->replicas, boot->ranks, keys->replicas, keys->ranks);
    return tri_zkeypair_load(o->worker_key_file, pair, err);
  }
  boot->endpoint[0] = '\0';
  TRI_CHECK(tri_zkeypair_make(pair, err));
  snprintf(boot->server_key, sizeof boot->server_key, "%s", pair->public_key);
  if (keys->texts) return TRI_OK;
  TRI_CHECK(tri_boot_make_keys(boot, keys->replicas, keys->ranks, err));
  if (!o->worker_key_file) return TRI_OK;
  unlink(o->worker_key_file);
  return tri_zkeypair_save(o->worker_key_file, pair, err);
}

static tri_status find_public_keys(const tri_boot *boot, tri_rank_keys *keys, tri_error *err) {
  size_t count = (size_t)keys->replicas * keys->ranks;
  bool made_here = !keys->texts;
  if (made_here) keys->texts = tri_calloc(count, sizeof *keys->texts);
  keys->raw = tri_calloc(count, sizeof *keys->raw);
  if (!keys->texts || !keys->raw) return tri_fail(err, TRI_NO_MEMORY, "worker_endpoint", "no memory for the keys");
  for (size_t i = 0; i < count; i++) {
    if (made_here)
      TRI_CHECK(
          tri_boot_public_key(boot, (uint32_t)(i / keys->ranks), (uint32_t)(i % keys->ranks), keys->texts[i], err));
    TRI_CHECK(tri_zkey_check(keys->texts[i], "worker_endpoint", err));
    tri_zkey_raw(keys->texts[i], keys->raw[i]);
  }
  return TRI_OK;
}

void tri_rank_keys_free(tri_rank_keys *k) {
  tri_free(k->texts);
  tri_free(k->raw);
  *k = (tri_rank_keys){.replicas = 0};
}

static tri_status open_server(const tri_serve_options *o, tri_zcontext *z, bool one_host, const char *bound,
                              tri_zserver_config *zc, tri_zserver **out, tri_error *err) {
  char endpoint[300], host[128] = "127.0.0.1";
  if (!one_host) tri_boot_host_address(o->interface, host, sizeof host);
  snprintf(endpoint, sizeof endpoint, "tcp://%s:*", host);
  if (strcmp(o->worker_endpoint, "auto") != 0) snprintf(endpoint, sizeof endpoint, "%s", o->worker_endpoint);
  zc->endpoint = bound[0] ? bound : endpoint;
  tri_status st = tri_zserver_open(z, zc, out, err);
  if (st != TRI_OK && !strcmp(err->field, "endpoint")) snprintf(err->field, sizeof err->field, "worker_endpoint");
  return st;
}

tri_status tri_worker_socket_open(const tri_serve_options *o, tri_zcontext *z, bool one_host, tri_rank_keys *keys,
                                  tri_boot *boot, tri_zserver **out, tri_error *err) {
  tri_zkeypair pair = {.public_key = ""};
  size_t count = (size_t)keys->replicas * keys->ranks;
  tri_status st;
  const char **list = tri_calloc(count, sizeof *list);
  if (!list) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "worker_endpoint", "no memory for the keys"));
  TRI_TRY(find_worker_keys(o, keys, boot, &pair, err));
  TRI_TRY(find_public_keys(boot, keys, err));
  for (size_t i = 0; i < count; i++) list[i] = keys->texts[i];
  tri_zserver_config zc = {.curve = &pair,
                           .allowed = list,
                           .num_allowed = (int)count,
                           .max_message = TRI_WIRE_MAX_MESSAGE,
                           .backlog = WORKER_BACKLOG};
  TRI_TRY(open_server(o, z, one_host, boot->endpoint, &zc, out, err));
  snprintf(boot->endpoint, sizeof boot->endpoint, "%s", tri_zserver_endpoint(*out));
  if (o->boot_file && boot->secrets) TRI_TRY(tri_boot_save(o->boot_file, boot, err));
cleanup:
  explicit_bzero(&pair, sizeof pair);
  tri_free(list);
  return st;
}
