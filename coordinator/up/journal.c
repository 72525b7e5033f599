/* SPDX-License-Identifier: Apache-2.0 */
/* The journal that a cluster has unless an option says otherwise: in the user's state folder, a folder for each
 * endpoint and model, as jobs of one model are none of another. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "coordinator/journal/journal.h"
#include "coordinator/up/up.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

enum { NAME_BYTES = 64, ROOM_BYTES = 64 << 20 /* for two segments, and some more */ };

static uint64_t add(uint64_t hash, const char *text) { return tri_hash_bytes(hash, text, strlen(text) + 1); }

/* Writes the folder's name: the end of the endpoint, and a hash of what must be the same at the next start. A home may
 * be shared by hosts, which have the same endpoints. */
static void name_folder(const tri_up *u, const char *endpoint, char out[NAME_BYTES]) {
  char host[HOST_NAME_MAX + 1] = "", at[PATH_MAX] = "", *model = realpath(u->opts.serve.model, NULL);
  gethostname(host, sizeof host - 1);
  bool relative = !strncmp(endpoint, "ipc://", 6) && endpoint[6] != '/';
  if (relative && !getcwd(at, sizeof at)) at[0] = '\0';
  uint64_t hash = add(add(add(add(TRI_HASH_SEED, host), at), endpoint), model ? model : u->opts.serve.model);
  free(model); /* realpath's */
  const char *slash = strrchr(endpoint, '/'), *tail = slash ? slash + 1 : endpoint;
  int n = snprintf(out, NAME_BYTES, "%.40s-%016llx", tail, (unsigned long long)hash);
  for (int i = 0; i < n; i++)
    if (!isalnum((unsigned char)out[i]) && out[i] != '-' && out[i] != '_') out[i] = '_';
}

/* A port that the system chooses is another one at the next start. */
static bool stays(const char *endpoint) {
  size_t n = strlen(endpoint);
  bool chosen = n > 2 && endpoint[n - 2] == ':' && (endpoint[n - 1] == '*' || endpoint[n - 1] == '0');
  return strncmp(endpoint, "tcp://", 6) != 0 || !chosen;
}

/* Makes sure that a journal can be written there. One that is there already has its room. */
static tri_status try_folder(const char *folder, tri_error *err) {
  char probe[PATH_MAX + sizeof "/probe"];
  struct statvfs disk;
  struct rlimit most;
  if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < TRI_JOURNAL_SEGMENT_BYTES)
    return tri_fail(err, TRI_NO_CAPACITY, "journal",
                    "files may have %llu KiB (ulimit -f), and those of a journal have %d",
                    (unsigned long long)most.rlim_cur >> 10, TRI_JOURNAL_SEGMENT_BYTES >> 10);
  snprintf(probe, sizeof probe, "%s/probe", folder);
  TRI_CHECK(tri_file_replace(probe, "", 0, err)); /* makes the folders, too */
  unlink(probe);
  snprintf(probe, sizeof probe, "%s/lock", folder);
  if (!access(probe, F_OK) || statvfs(folder, &disk) || (double)disk.f_bavail * (double)disk.f_frsize >= ROOM_BYTES)
    return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, "journal", "%s: the disk has less than %d MiB of room", folder,
                  ROOM_BYTES >> 20);
}

tri_status tri_up_journal_choose(tri_up *u, tri_error *err) {
  char endpoint[TRI_ENDPOINT_BYTES], name[NAME_BYTES], within[NAME_BYTES + sizeof "journal/"], folder[PATH_MAX];
  tri_error why = {0};
  if (u->opts.no_journal && u->opts.serve.journal)
    return tri_fail(err, TRI_USAGE, "no_journal", "--journal and --no-journal exclude each other");
  if (u->opts.no_journal || u->opts.serve.journal) return TRI_OK;
  TRI_CHECK(tri_endpoint_resolve(u->opts.serve.endpoint, endpoint, err));
  if (!stays(endpoint)) return TRI_OK;
  name_folder(u, endpoint, name);
  snprintf(within, sizeof within, "journal/%s", name);
  tri_state_file(within, folder);
  tri_status st = folder[0]
                      ? try_folder(folder, &why)
                      : tri_fail(&why, TRI_NOT_FOUND, "journal", "neither XDG_STATE_HOME nor HOME names a folder");
  if (st != TRI_OK) {
    tri_log(TRI_LOG_WARN, u->called,
            "without a journal requests end with their coordinator (--no-journal, or --journal DIR): %s",
            why.message[0] ? why.message : tri_status_text(st));
    return TRI_OK;
  }
  rmdir(folder); /* an empty one: the coordinator makes it, if it comes so far */
  u->pass[u->num_pass] = tri_up_argument(u, "journal", folder);
  return u->pass[u->num_pass++] ? TRI_OK : TRI_NO_MEMORY;
}
