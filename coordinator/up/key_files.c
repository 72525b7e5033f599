/* SPDX-License-Identifier: Apache-2.0 */
/* Files of keys, which are read once before anything is started: the coordinator and the gateway read them for
 * themselves, the gateway when the model has been loaded. */
#include "base/mem.h"
#include "client/gateway/keys.h"
#include "comm/wire/zsock.h"
#include "coordinator/net/allowed_keys.h"
#include "coordinator/up/up.h"

static tri_status check_pair(const char *path, tri_error *err) {
  tri_zkeypair pair;
  tri_status st = tri_zkeypair_load(path, &pair, err);
  if (st != TRI_OK) tri_error_in_file(err, path);
  return st;
}

static tri_status check_allowed(const char *path, tri_error *err) {
  tri_allowed_keys *keys = tri_calloc(1, sizeof *keys);
  if (!keys) return tri_fail(err, TRI_NO_MEMORY, "allowed_keys", "no memory to read %s", path);
  tri_status st = tri_allowed_keys_read(path, keys, err);
  tri_free(keys);
  return st;
}

static tri_status check_api_keys(const char *path, tri_error *err) {
  gw_keys *keys = NULL;
  tri_status st = gw_keys_load(path, &keys, err);
  gw_keys_free(keys);
  return st;
}

tri_status tri_up_check_key_files(const tri_up *u, tri_error *err) {
  const tri_serve_options *o = &u->opts.serve;
  const char *api_keys = u->opts.gateway.listen ? u->opts.gateway.api_key_file : NULL;
  if (o->key_file) TRI_CHECK(check_pair(o->key_file, err));
  if (o->allowed_keys) TRI_CHECK(check_allowed(o->allowed_keys, err));
  return api_keys ? check_api_keys(api_keys, err) : TRI_OK;
}
