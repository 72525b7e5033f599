/* Shared by the files of libtrireme only. */
#ifndef TRI_CLIENT_INTERNAL_H
#define TRI_CLIENT_INTERNAL_H

#include "client/trireme.h"
#include "comm/wire/endpoint.h"
#include "comm/wire/client.h"
#include "comm/wire/zsock.h"

struct trireme {
  tri_zcontext *z;
  tri_zlink *link;
  tri_buf buf;
  tri_arena *arena; /* of the last event */
  const char *rest; /* of the last frame: messages that have not been looked at */
  size_t rest_len;
  tri_server_msg *msg;
  tri_client_msg *out;
  uint64_t next_id;
  int timeout_ms;
  int fd, ready_fd; /* trireme_fd: an epoll over the link's descriptors and ready_fd, an eventfd; -1: nobody asked */
  bool ready;       /* ready_fd is readable */
  bool has_keys;
  bool over; /* what came before the connection ended has been given: nothing is received any more */
  uint64_t max_message;
  char endpoint[TRI_ENDPOINT_BYTES];
  char server_version[64];
};

#pragma GCC visibility push(hidden)
__attribute__((format(printf, 5, 6))) trireme_result
tri_client_say(trireme_error *error, trireme_result r, tri_status code, const char *field, const char *fmt, ...);
trireme_result tri_client_fail(trireme_error *error, trireme_result r, const tri_error *err);
/* The same with the result that st stands for; err may be without a status. */
trireme_result tri_client_fail_status(trireme_error *error, tri_status st, const tri_error *err);
/* Gives a program's struct of `size` bytes, whose first member is that size, the defaults, of `known` bytes. Of a size
 * that has no room for itself no more is written than there is room for. */
void tri_client_init_struct(void *to, size_t size, const void *defaults, size_t known);
trireme_result tri_client_check_size(size_t size, size_t known, const char *type, trireme_error *error);
/* Puts a program's struct over the defaults, of `known` bytes, in `to`. */
trireme_result tri_client_take_struct(void *to, size_t known, const void *from, const char *type, trireme_error *error);
/* Copies what a hello or an error from the server says at most. */
void tri_client_copy(char *out, size_t cap, tri_wire_str s);
/* Turns c->msg into *out, with memory of c->arena. */
trireme_result tri_client_event(trireme *c, trireme_event *out, trireme_error *error);
/* Makes the descriptor of trireme_fd readable while a call of trireme_next would give something, and where there may be
 * something without looking; at the end of every call that sends or receives. */
void tri_client_show_ready(trireme *c, bool may_be);
void tri_client_close_fd(trireme *c);
#pragma GCC visibility pop

#endif
