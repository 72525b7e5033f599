/* SPDX-License-Identifier: Apache-2.0 */
/* The doors that MPI opens to the network. Open MPI 4's TCP transport listens on every address of a host, whatever
 * networks it is to use, and one byte from anybody holds a rank up as long as the connection lasts: so ranks of
 * one host get along without it, and those of several answer to each other's hosts alone. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "comm/comm.h"
#include "base/log.h"
#include "base/mem.h"

enum {
  MAX_PROGRAM = 4096, /* what the system takes */
  V4_SOURCE = 12,     /* in the header of a packet */
  V6_SOURCE = 8,
  IPV6_VERSION = 0x60,
};

/* In network order; those of IPv4 as IPv6 maps them. */
typedef struct addresses {
  struct in6_addr *at;
  int32_t count; /* UNKNOWN: the system does not tell, or memory is out */
} addresses;
enum { UNKNOWN = -1 };

static bool same_number(const char *a, const char *b) {
  const char *x = getenv(a), *y = getenv(b);
  return x && y && !strcmp(x, y);
}

void tri_mpi_choose_transport(void) {
  const char *nodes = getenv("SLURM_STEP_NUM_NODES");
  bool mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
  bool one_host =
      mpirun ? same_number("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE") : nodes && atoi(nodes) == 1;
  if (!one_host) return;
  /* The environment comes first: a user's choice stays. */
  setenv("OMPI_MCA_pml", "ob1", 0);
  setenv("OMPI_MCA_btl", "self,vader", 0);
}

/* Returns whether an interface has an address that others may come from. */
static bool read_address(const struct ifaddrs *a, struct in6_addr *to) {
  *to = (struct in6_addr){0};
  if (!a->ifa_addr || a->ifa_flags & IFF_LOOPBACK) return false;
  if (a->ifa_addr->sa_family == AF_INET6) {
    memcpy(to, &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr, sizeof *to);
    return true;
  }
  to->s6_addr[10] = to->s6_addr[11] = 0xff;
  if (a->ifa_addr->sa_family == AF_INET)
    memcpy(to->s6_addr + 12, &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr, 4);
  return a->ifa_addr->sa_family == AF_INET;
}

static addresses own_addresses(void) {
  struct ifaddrs *all = NULL;
  struct in6_addr one;
  addresses own = {.count = UNKNOWN};
  size_t most = 1;
  if (getifaddrs(&all)) return own;
  for (const struct ifaddrs *a = all; a; a = a->ifa_next) most++;
  own.at = tri_calloc(most, sizeof *own.at);
  if (own.at) own.count = 0;
  for (const struct ifaddrs *a = all; own.at && a; a = a->ifa_next)
    if (read_address(a, &one)) own.at[own.count++] = one;
  freeifaddrs(all);
  return own;
}

static int by_bytes(const void *a, const void *b) { return memcmp(a, b, sizeof(struct in6_addr)); }

/* Leaves each address once, and returns how many there are. */
static size_t unify(struct in6_addr *at, size_t count) {
  size_t unique = 0;
  if (count) qsort(at, count, sizeof *at, by_bytes);
  for (size_t i = 0; i < count; i++)
    if (!unique || by_bytes(&at[i], &at[unique - 1])) at[unique++] = at[i];
  return unique;
}

typedef struct program {
  struct sock_filter code[MAX_PROGRAM];
  unsigned len;
  bool full;
} program;

static void emit(program *p, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf) {
  p->full |= p->len == MAX_PROGRAM;
  if (!p->full) p->code[p->len++] = (struct sock_filter){code, jt, jf, k};
}

static void emit_load(program *p, uint16_t size, uint32_t at) {
  emit(p, (uint16_t)(BPF_LD | BPF_ABS | size), (uint32_t)SKF_NET_OFF + at, 0, 0);
}

static uint32_t word(const struct in6_addr *a, int i) {
  uint32_t w;
  memcpy(&w, a->s6_addr + 4 * i, sizeof w);
  return ntohl(w);
}

enum { PASS = 0x7fffffff, DROP = 0 };

/* A packet passes if it comes from one of the addresses; nothing else even gets an answer. Classic BPF on the header of
 * the network's layer: the first nibble is the version. The IPv6 part compares an address word by word, and a mismatch
 * skips the words that are left and the PASS after them; the IPv4 part is one word an address. The jump over the first
 * part is patched once its length is known, as a forward JA may be of any length but conditional jumps are of 255 at
 * most. */
static void write_program(program *p, const struct in6_addr *from, size_t count) {
  emit_load(p, BPF_B, 0);
  emit(p, BPF_ALU | BPF_AND | BPF_K, 0xf0, 0, 0);
  emit(p, BPF_JMP | BPF_JEQ | BPF_K, IPV6_VERSION, 1, 0);
  emit(p, BPF_JMP | BPF_JA, 0, 0, 0);
  unsigned jump = p->len;
  for (size_t i = 0; i < count; i++) {
    enum { WORDS = 4 };
    if (IN6_IS_ADDR_V4MAPPED(&from[i])) continue;
    for (int w = 0; w < WORDS; w++) {
      emit_load(p, BPF_W, (uint32_t)(V6_SOURCE + 4 * w));
      emit(p, BPF_JMP | BPF_JEQ | BPF_K, word(&from[i], w), 0, (uint8_t)(2 * (WORDS - 1 - w) + 1));
    }
    emit(p, BPF_RET | BPF_K, PASS, 0, 0);
  }
  emit(p, BPF_RET | BPF_K, DROP, 0, 0);
  p->code[jump - 1].k = p->len - jump;
  emit_load(p, BPF_W, V4_SOURCE);
  for (size_t i = 0; i < count; i++) {
    if (!IN6_IS_ADDR_V4MAPPED(&from[i])) continue;
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, word(&from[i], 3), 0, 1);
    emit(p, BPF_RET | BPF_K, PASS, 0, 0);
  }
  emit(p, BPF_RET | BPF_K, DROP, 0, 0);
}

static bool listens(int fd) {
  int listening = 0, domain = 0;
  socklen_t size = sizeof listening;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) || !listening) return false;
  size = sizeof domain;
  return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && (domain == AF_INET || domain == AF_INET6);
}

static void attach(const program *p) {
  struct sock_fprog f = {.len = (unsigned short)p->len, .filter = (struct sock_filter *)(uintptr_t)p->code};
  DIR *dir = opendir("/proc/self/fd");
  bool ok = dir && !p->full;
  for (const struct dirent *e; ok && (e = readdir(dir));) {
    int fd = atoi(e->d_name);
    if (e->d_name[0] != '.' && listens(fd)) ok = !setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &f, sizeof f);
  }
  if (dir) closedir(dir);
  if (!ok) tri_log(TRI_LOG_WARN, "comm", "the ports that MPI listens on could not be closed to other hosts");
}

/* Gathers the addresses of all ranks' hosts; *num is UNKNOWN where one of them does not know its own: its ranks would
 * be shut out. */
static tri_status gather(tri_comm *world, const addresses *own, struct in6_addr **out, int32_t *num) {
  size_t size = (size_t)world->size, most = 1, total = 0, bytes = 0;
  int32_t *counts = tri_calloc(size, sizeof *counts);
  struct in6_addr *mine = NULL, *all = NULL;
  tri_status st = tri_comm_agree(world, counts ? TRI_OK : TRI_NO_MEMORY); /* those without memory take part, too */
  if (st == TRI_OK) st = tri_comm_all_gather(world, &own->count, counts, sizeof *counts);
  for (size_t r = 0; st == TRI_OK && r < size; r++)
    if (counts[r] > 0 && (size_t)counts[r] > most) most = (size_t)counts[r];
  if (st == TRI_OK && tri_size_mul(size, most, &bytes)) all = tri_calloc(bytes, sizeof *all);
  if (st == TRI_OK) mine = tri_calloc(most, sizeof *mine);
  if (st == TRI_OK) st = tri_comm_agree(world, all && mine ? TRI_OK : TRI_NO_MEMORY);
  if (st == TRI_OK && own->count > 0) memcpy(mine, own->at, (size_t)own->count * sizeof *mine);
  if (st == TRI_OK) st = tri_comm_all_gather(world, mine, all, most * sizeof *mine);
  bool known = true;
  for (size_t r = 0; st == TRI_OK && r < size; r++) {
    known = known && counts[r] != UNKNOWN;
    for (int32_t i = 0; i < counts[r]; i++) all[total++] = all[r * most + (size_t)i];
  }
  tri_free(counts);
  tri_free(mine);
  *out = all;
  *num = known ? (int32_t)unify(all, total) : UNKNOWN;
  return st;
}

tri_status tri_mpi_confine(tri_comm *world) {
  addresses own = own_addresses();
  struct in6_addr *from = NULL;
  int32_t num = UNKNOWN;
  program *p = tri_calloc(1, sizeof *p);
  tri_status st = tri_comm_agree(world, p ? TRI_OK : TRI_NO_MEMORY);
  if (st == TRI_OK) st = gather(world, &own, &from, &num);
  if (st == TRI_OK) {
    write_program(p, from, num == UNKNOWN ? 0 : (size_t)num);
    p->full |= num == UNKNOWN;
    attach(p);
  }
  tri_free(own.at);
  tri_free(from);
  tri_free(p);
  return st;
}
