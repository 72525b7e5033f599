/* SPDX-License-Identifier: Apache-2.0 */
/* The paths that there are. One that ends in a slash stands for those below it, with at least one more byte; the root
 * is a whole path. */
#include <string.h>

#include "client/gateway/gateway.h"

enum { READS = 1 << HTTP_GET | 1 << HTTP_HEAD, POSTS = 1 << HTTP_POST };

const gw_path gw_paths[GW_NUM_PATHS] = {
    [GW_PATH_COMPLETIONS] = {.path = "/v1/completions", .methods = POSTS},
    [GW_PATH_CHAT] = {.path = "/v1/chat/completions", .methods = POSTS},
    [GW_PATH_EMBEDDINGS] = {.path = "/v1/embeddings", .methods = POSTS},
    [GW_PATH_TOKENIZE] = {.path = "/tokenize", .methods = POSTS, .alone = true},
    [GW_PATH_DETOKENIZE] = {.path = "/detokenize", .methods = POSTS, .alone = true},
    [GW_PATH_MODELS] = {.path = "/v1/models", .methods = READS},
    [GW_PATH_ONE_MODEL] = {.path = "/v1/models/", .methods = READS},
    [GW_PATH_HEALTH] = {.path = "/health", .methods = READS, .open = true, .plain = true},
    [GW_PATH_READY] = {.path = "/ready", .methods = READS, .open = true, .plain = true},
    [GW_PATH_LIVE] = {.path = "/live", .methods = READS, .open = true, .alone = true, .plain = true},
    [GW_PATH_VERSION] = {.path = "/version", .methods = READS, .alone = true, .plain = true},
    [GW_PATH_METRICS] = {.path = "/metrics", .methods = READS, .plain = true},
    [GW_PATH_ROOT] = {.path = "/", .methods = READS, .open = true, .alone = true, .plain = true},
};

const gw_path *gw_path_find(http_str path) {
  for (size_t i = 0; i < GW_NUM_PATHS; i++) {
    const char *name = gw_paths[i].path;
    size_t len = strlen(name);
    bool whole = len == 1 || name[len - 1] != '/';
    if (path.len >= len + !whole && !memcmp(path.s, name, len) && (!whole || path.len == len)) return &gw_paths[i];
  }
  return NULL;
}

bool gw_path_exists(const gateway *g, const gw_path *p) { return !g->o.http.metrics_only || p->plain; }

void gw_paths_text(const gateway *g, tri_buf *out) {
  for (size_t i = 0; i < GW_NUM_PATHS; i++) {
    bool begins = gw_paths[i].path[strlen(gw_paths[i].path) - 1] == '/'; /* "/", and the paths below another one */
    if (!begins && gw_path_exists(g, &gw_paths[i]))
      tri_text_printf(out, "%s%s", out->len ? ", " : "", gw_paths[i].path);
  }
}
