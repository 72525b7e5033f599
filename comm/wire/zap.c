/* SPDX-License-Identifier: Apache-2.0 */
/* The list of clients that may connect: a thread answers the library's requests (ZAP, RFC 27) by the key of the client
 * and the domain of the server. A reply is six frames: version, the request's number, code, text, the user's name and
 * no metadata. */
#include "comm/wire/zsock_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { ZAP_VERSION, ZAP_REQUEST, ZAP_DOMAIN, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_KEY, ZAP_FRAMES };

static bool domain_allows(tri_zcontext *z, const char *domain, size_t domain_len, const uint8_t *key) {
  bool found = false;
  pthread_mutex_lock(&z->lock);
  for (const tri_zap_domain *d = LIST_FIRST(&z->domains); d && !found; d = LIST_NEXT(d, links)) {
    if (strlen(d->name) != domain_len || memcmp(d->name, domain, domain_len)) continue;
    for (int i = 0; i < d->num_keys && !found; i++) found = !memcmp(d->keys[i], key, TRI_Z_RAW_KEY);
  }
  pthread_mutex_unlock(&z->lock);
  return found;
}

/* Reads one request into buffers of fixed size; frames beyond them are dropped. Returns the number of frames, or -1 at
 * the end. */
static int zap_read(void *s, char frame[ZAP_FRAMES][256], size_t len[ZAP_FRAMES]) {
  int n = 0, more = 1;
  while (more) {
    char rest[256];
    int got = zmq_recv(s, n < ZAP_FRAMES ? frame[n] : rest, sizeof rest, 0);
    if (got < 0 && zmq_errno() == EINTR) continue;
    if (got < 0) return -1;
    if (n < ZAP_FRAMES) len[n] = (size_t)got < sizeof rest ? (size_t)got : sizeof rest;
    n++;
    size_t size = sizeof more;
    if (zmq_getsockopt(s, ZMQ_RCVMORE, &more, &size)) return -1;
  }
  return n;
}

void *tri_zap_main(void *arg) {
  tri_zcontext *z = arg;
  void *s = z->zap_socket;
  char frame[ZAP_FRAMES][256];
  size_t len[ZAP_FRAMES];
  for (int n; (n = zap_read(s, frame, len)) >= 0;) {
    bool ok = n == ZAP_FRAMES && len[ZAP_MECHANISM] == 5 && !memcmp(frame[ZAP_MECHANISM], "CURVE", 5) &&
              len[ZAP_KEY] == TRI_Z_RAW_KEY &&
              domain_allows(z, frame[ZAP_DOMAIN], len[ZAP_DOMAIN], (const uint8_t *)frame[ZAP_KEY]);
    const char *code = ok ? "200" : "400", *text = ok ? "OK" : "this key is not on the list";
    zmq_send(s, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(s, frame[ZAP_REQUEST], n > ZAP_REQUEST ? len[ZAP_REQUEST] : 0, ZMQ_SNDMORE);
    zmq_send(s, code, 3, ZMQ_SNDMORE);
    zmq_send(s, text, strlen(text), ZMQ_SNDMORE);
    /* The name of a user is the key itself: every message of the connection carries it from now on. */
    char user[TRI_Z_KEY] = "";
    if (ok) zmq_z85_encode(user, (const uint8_t *)frame[ZAP_KEY], TRI_Z_RAW_KEY);
    zmq_send(s, user, strlen(user), ZMQ_SNDMORE);
    zmq_send(s, "", 0, 0);
  }
  zmq_close(s);
  return NULL;
}

void tri_zap_domain_free(tri_zcontext *z, tri_zap_domain *d) {
  if (!d) return;
  pthread_mutex_lock(&z->lock);
  LIST_REMOVE(d, links);
  pthread_mutex_unlock(&z->lock);
  tri_free(d->keys);
  tri_free(d);
}

tri_status tri_zap_domain_make(tri_zcontext *z, const char *const *keys, int n, tri_zap_domain **out, tri_error *err) {
  tri_zap_domain *d = tri_calloc(1, sizeof *d);
  if (d) d->keys = tri_calloc((size_t)(n > 0 ? n : 1), TRI_Z_RAW_KEY);
  if (!d || !d->keys) {
    tri_free(d);
    return TRI_NO_MEMORY;
  }
  for (int i = 0; i < n; i++) {
    if (!keys || !tri_zkey_raw(keys[i], d->keys[i])) {
      tri_free(d->keys);
      tri_free(d);
      return tri_fail(err, TRI_INVALID_ARGUMENT, "allowed", "key %d of the allow-list is not %d characters of Z85",
                      i + 1, TRI_Z_KEY - 1);
    }
  }
  d->num_keys = n;
  pthread_mutex_lock(&z->lock);
  snprintf(d->name, sizeof d->name, "d%u", z->next_number++);
  LIST_INSERT_HEAD(&z->domains, d, links);
  pthread_mutex_unlock(&z->lock);
  *out = d;
  return TRI_OK;
}
