/* SPDX-License-Identifier: Apache-2.0 */
/* Facts as bytes, and back: a journal's record has a kept_head, then what the kept_ struct of its type says. Messages
 * within are packed as on the wire; of tokens the very bytes in which they came are kept.
 *
 * Compaction: a job that lives for long would keep every segment since its first record. When the journal has more than
 * twice what the jobs need, those with the oldest records are recorded anew as one WHOLE, which collects the records
 * between BEGIN and WHOLE. Once that is durable the core names it as the job's first record, and segments before the
 * oldest such record are forgotten. */
#include "coordinator/journal/recorder.h"

#include <string.h>
#include <time.h>

#include "coordinator/journal/journal.h"
#include "base/log.h"
#include "base/mem.h"

enum { ARENA_BYTES = 64 << 10 };

/* Before every payload. Little-endian, as all of it. */
typedef struct kept_head {
  int64_t wall_ms; /* when it was recorded, since 1970 */
  uint64_t job;
} kept_head;

/* After it the prompt's text, then the request as a client packs it. */
typedef struct kept_accepted {
  uint32_t owner_kind;
  uint8_t owner[TRI_OWNER_BYTES];
  uint32_t prompt_bytes;
  tri_record_content content;
  uint64_t model;
} kept_accepted;

/* By the epoch a restored job takes the tokens of that life of the replica alone, and by the hash it is not continued
 * with other weights. */
typedef struct kept_assigned {
  uint64_t replica, epoch, weights_hash;
} kept_assigned;

/* After it the message as a worker packs it. */
typedef struct kept_tokens {
  uint64_t replica;
} kept_tokens;

typedef struct kept_ended {
  uint16_t timed_out, dropped;
  uint32_t has_error;
  tri_error error;
} kept_ended;

/* A part of a WHOLE, before the payload that it would have by itself. */
typedef struct kept_part {
  uint32_t type, len;
} kept_part;

/* Segments of a journal that are left alone, whatever is in them. */
enum { FEW_SEGMENTS = 4 };
/* Bytes that are written at once, and a small part of a segment. */
static const size_t MUCH = 1 << 20;

struct tri_recorder {
  tri_journal *journal;
  char *folder;
  tri_core *core; /* while it is restored */
  tri_arena *arena;
  tri_buf record, message;
  tri_buf whole;       /* of a WHOLE: what was recorded since its BEGIN */
  bool is_in_whole;    /* more comes for it */
  const void *came_as; /* bytes of a message with tokens, or NULL */
  size_t came_as_len;
  int64_t now, wall_ms; /* of the restoring */
  bool has_accepted;    /* something is to become durable */
  bool full;            /* as was said last */
  bool renewed;         /* the journal was removed: what runs is to be recorded again */
  bool gone;            /* and cannot be made again, as was said last */
  tri_status failure;   /* of a record */
};

static int64_t wall_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- into the journal ---- */

static tri_status add(tri_recorder *k, const void *p, size_t n) { return tri_buf_append(&k->record, p, n); }

static tri_status add_accepted(tri_recorder *k, const tri_record *r) {
  kept_accepted a = {.owner_kind = r->accepted.owner.kind,
                     .prompt_bytes = (uint32_t)r->accepted.prompt.len,
                     .content = r->accepted.content,
                     .model = r->accepted.model};
  memcpy(a.owner, r->accepted.owner.bytes, sizeof a.owner);
  TRI_CHECK(add(k, &a, sizeof a));
  if (a.prompt_bytes) TRI_CHECK(add(k, r->accepted.prompt.s, a.prompt_bytes));
  TRI_CHECK(tri_client_msg_pack(&r->accepted.msg, &k->message));
  return add(k, k->message.data, k->message.len);
}

static tri_status add_assigned(tri_recorder *k, const tri_record *r) {
  kept_assigned a = {r->assigned.replica, r->assigned.epoch, r->assigned.weights_hash};
  return add(k, &a, sizeof a);
}

/* Bytes that a worker has sent are kept as they came, without packing them again. */
static tri_status add_tokens(tri_recorder *k, const tri_record *r) {
  kept_tokens t = {r->tokens.replica};
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS, .tokens = *r->tokens.tokens};
  TRI_CHECK(add(k, &t, sizeof t));
  if (k->came_as) return add(k, k->came_as, k->came_as_len);
  TRI_CHECK(tri_replica_msg_pack(&m, &k->message));
  return add(k, k->message.data, k->message.len);
}

static tri_status add_ended(tri_recorder *k, const tri_record *r) {
  kept_ended e = {.timed_out = r->ended.timed_out, .dropped = r->ended.dropped, .has_error = r->ended.error != NULL};
  if (r->ended.error) e.error = *r->ended.error;
  return add(k, &e, sizeof e);
}

/* A record of tokens has no job of its own: its message names a job with each token. */
static tri_status pack(tri_recorder *k, const tri_record *r) {
  kept_head head = {wall_ms() - r->age_ns / 1000000, r->op == TRI_RECORD_TOKENS ? 0 : r->job};
  k->record.len = 0;
  TRI_CHECK(add(k, &head, sizeof head));
  switch (r->op) {
  case TRI_RECORD_ACCEPTED: return add_accepted(k, r);
  case TRI_RECORD_ASSIGNED: return add_assigned(k, r);
  case TRI_RECORD_TOKENS: return add_tokens(k, r);
  case TRI_RECORD_ENDED: return add_ended(k, r);
  case TRI_RECORD_WHOLE: return add(k, k->whole.data, k->whole.len);
  case TRI_RECORD_OVER:
  case TRI_RECORD_DIED:
  case TRI_RECORD_BEGIN: break;
  }
  return TRI_OK;
}

/* A part has the whole payload of its record, head included, so that restore reads it as one. */
static tri_status add_part(tri_recorder *k, tri_record_op op) {
  kept_part part = {op, (uint32_t)k->record.len};
  TRI_CHECK(tri_buf_append(&k->whole, &part, sizeof part));
  return tri_buf_append(&k->whole, k->record.data, k->record.len);
}

uint64_t tri_recorder_record(tri_recorder *k, const tri_record *r) {
  uint64_t number = 0;
  if (!k || k->core) return 0; /* what is restored is there already */
  tri_status st = pack(k, r);
  if (r->op == TRI_RECORD_BEGIN) {
    k->whole.len = 0;
    k->is_in_whole = true;
    return 0;
  }
  k->is_in_whole = k->is_in_whole && r->op != TRI_RECORD_WHOLE;
  if (st == TRI_OK && k->is_in_whole)
    st = add_part(k, r->op);
  else if (st == TRI_OK)
    st = tri_journal_append(k->journal, r->op, k->record.data, k->record.len, &number);
  if (st != TRI_OK && !k->failure) k->failure = st;
  if (r->op == TRI_RECORD_ACCEPTED || r->op == TRI_RECORD_WHOLE) k->has_accepted = true;
  return number;
}

void tri_recorder_came_as(tri_recorder *k, const void *data, size_t len) {
  if (!k) return;
  k->came_as = data;
  k->came_as_len = len;
}

/* Sees to a journal that was removed, as a cleaner of old files does. */
static tri_status renew(tri_recorder *k, tri_error *err) {
  bool renewed;
  tri_error why = {0};
  tri_status st = tri_journal_renew(k->journal, &renewed, &why);
  if (st != TRI_OK) {
    if (!k->gone)
      tri_log(TRI_LOG_ERROR, "journal", "it was removed, and cannot be created again%s: %s",
              tri_journal_is_lost(k->journal) ? ", and until then requests are lost with the coordinator" : "",
              why.message);
    k->gone = true;
    return tri_fail(err, st, "journal", "%s", why.message);
  }
  if (renewed)
    tri_log(TRI_LOG_WARN, "journal",
            "it was removed, replaced or truncated: it is created again, with the unfinished requests");
  k->renewed |= renewed;
  k->gone = false;
  return TRI_OK;
}

/* Lets what is open continue for now where it fails. */
static void renew_and_record(tri_recorder *k, tri_core *core, int64_t now) {
  renew(k, NULL);
  if (!k->renewed) return;
  k->has_accepted = true; /* also of what was written into files that are gone */
  tri_core_record_again(core, now);
  k->renewed = false;
}

/* Writes; where that fails since the folder or its segment was removed, makes the journal anew and tries once more. */
static tri_status write_all(tri_recorder *k, tri_error *err) {
  tri_status st = tri_journal_write(k->journal, err);
  if (st != TRI_IO) return st;
  if (renew(k, NULL) == TRI_OK ? !k->renewed : !tri_journal_is_lost(k->journal)) return st;
  if (err) tri_error_clear(err);
  return tri_journal_write(k->journal, err);
}

tri_status tri_recorder_write(tri_recorder *k, tri_error *err) {
  if (!k) return TRI_OK;
  if (k->failure)
    return tri_fail(err, k->failure, "journal", "a job cannot be written into the journal: %s",
                    tri_status_text(k->failure));
  TRI_CHECK(write_all(k, err));
  if (k->renewed) return TRI_OK; /* nothing passes for durable before it is recorded again */
  if (k->has_accepted) tri_journal_sync(k->journal);
  k->has_accepted = false;
  return TRI_OK;
}

void tri_recorder_tell_room(tri_recorder *k, tri_core *core) {
  if (!k) return;
  bool full = tri_journal_is_full(k->journal);
  if (full != k->full)
    tri_log(TRI_LOG_WARN, "journal", "the disk of %s %s", k->folder,
            full ? "is full: new requests are refused" : "has room again");
  k->full = full;
  tri_core_set_full(core, full ? k->folder : NULL);
}

bool tri_recorder_has_much(const tri_recorder *k) { return k && tri_journal_pending_bytes(k->journal) >= MUCH; }

int tri_recorder_fd(const tri_recorder *k) { return k ? tri_journal_fd(k->journal) : -1; }

tri_status tri_recorder_take_sync(tri_recorder *k, tri_core *core, int64_t now, tri_error *err) {
  TRI_CHECK(tri_journal_take_sync(k->journal, err));
  if (tri_journal_is_removed(k->journal) && !tri_journal_is_lost(k->journal)) renew_and_record(k, core, now);
  tri_core_durable(core, now, tri_journal_durable(k->journal));
  return TRI_OK;
}

/* Makes room for a job that is larger than what is always there; false: there is none. */
static bool make_room(tri_recorder *k, size_t bytes) {
  return !bytes || (bytes <= TRI_JOURNAL_MOST_BYTES && tri_journal_reserve(k->journal, bytes) == TRI_OK);
}

/* With more than twice of what is needed, and some segments, jobs whose records are older than the last ones come to
 * the end. So what is written for that is less than what it frees. A disk without room is left to those that run. */
static void compact(tri_recorder *k, tri_core *core, int64_t now) {
  uint64_t has = tri_journal_bytes(k->journal), few = FEW_SEGMENTS * tri_journal_segment_bytes(k->journal);
  if (has <= few || tri_journal_is_full(k->journal) || has - few <= 2 * tri_core_record_bytes(core)) return;
  uint64_t before = tri_journal_first_of_last(k->journal, FEW_SEGMENTS);
  size_t room = tri_core_compact_room(core, before);
  if (make_room(k, room)) tri_core_compact(core, now, before, room);
}

tri_status tri_recorder_tidy(tri_recorder *k, tri_core *core, int64_t now, tri_error *err) {
  if (!k) return TRI_OK;
  renew_and_record(k, core, now);
  compact(k, core, now);
  tri_status st = tri_journal_forget(k->journal, tri_core_oldest_record(core), err);
  tri_recorder_tell_room(k, core);
  return st;
}

/* ---- out of it ---- */

typedef struct reader {
  const char *p;
  size_t left;
  tri_status st; /* of a message in it */
} reader;

/* Memory of a record is aligned to nothing, so that structs are copied out of it. */
static bool take(reader *r, void *out, size_t n) {
  if (r->left < n) return false;
  memcpy(out, r->p, n);
  r->p += n;
  r->left -= n;
  return true;
}

static bool take_accepted(tri_recorder *k, reader *in, tri_record *r) {
  kept_accepted a;
  uint64_t id;
  if (!take(in, &a, sizeof a) || in->left < a.prompt_bytes) return false;
  r->accepted.owner.kind = (tri_owner_kind)a.owner_kind;
  memcpy(r->accepted.owner.bytes, a.owner, sizeof a.owner);
  r->accepted.content = a.content;
  r->accepted.model = a.model;
  r->accepted.prompt = (tri_wire_str){a.prompt_bytes ? in->p : NULL, a.prompt_bytes};
  in->p += a.prompt_bytes;
  in->left -= a.prompt_bytes;
  in->st = tri_client_msg_unpack(in->p, in->left, k->arena, &r->accepted.msg, &id, NULL);
  return in->st == TRI_OK && r->accepted.msg.op == TRI_OP_SUBMIT;
}

static bool take_tokens(tri_recorder *k, reader *in, tri_replica_msg *m, tri_record *r) {
  kept_tokens t;
  if (!take(in, &t, sizeof t)) return false;
  in->st = tri_replica_msg_unpack(in->p, in->left, k->arena, m, NULL);
  r->tokens.replica = (uint32_t)t.replica;
  r->tokens.tokens = &m->tokens;
  return in->st == TRI_OK && m->op == TRI_REPLICA_TOKENS;
}

static bool take_ended(reader *in, kept_ended *e, tri_record *r) {
  if (!take(in, e, sizeof *e)) return false;
  e->error.field[sizeof e->error.field - 1] = e->error.message[sizeof e->error.message - 1] = '\0';
  r->ended.timed_out = e->timed_out;
  r->ended.dropped = e->dropped;
  r->ended.error = e->has_error ? &e->error : NULL;
  return true;
}

static bool take_assigned(reader *in, tri_record *r) {
  kept_assigned a;
  if (!take(in, &a, sizeof a)) return false;
  r->assigned.replica = (uint32_t)a.replica;
  r->assigned.epoch = a.epoch;
  r->assigned.weights_hash = a.weights_hash;
  return true;
}

/* A start that has no room for all jobs is none: those that it left out would be lost. */
static tri_status no_memory(tri_error *err) {
  return tri_fail(err, TRI_NO_MEMORY, "journal", "no memory for the jobs of the journal");
}

static tri_status restore(void *ctx, const tri_journal_record *kept, tri_error *err);

/* A job whose former records are there, too, is made already. */
static bool restore_whole(tri_recorder *k, reader *in, const tri_journal_record *kept, uint64_t job, tri_error *err) {
  if (tri_core_restore_whole(k->core, job, kept->number)) return true;
  while (in->left) {
    kept_part part;
    if (!take(in, &part, sizeof part) || part.len > in->left || part.type == TRI_RECORD_WHOLE) return false;
    tri_journal_record one = {.type = part.type, .number = kept->number, .data = in->p, .len = part.len};
    in->st = restore(k, &one, err);
    if (in->st != TRI_OK) return false;
    in->p += part.len;
    in->left -= part.len;
  }
  return true;
}

static tri_status restore(void *ctx, const tri_journal_record *kept, tri_error *err) {
  tri_recorder *k = ctx;
  reader in = {.p = kept->data, .left = kept->len};
  kept_head head = {0};
  kept_ended ended;
  tri_replica_msg message;
  tri_arena_reset(k->arena);
  bool ok = take(&in, &head, sizeof head);
  tri_record r = {.op = (tri_record_op)kept->type, .job = head.job};
  switch (r.op) {
  case TRI_RECORD_ACCEPTED: ok = ok && take_accepted(k, &in, &r); break;
  case TRI_RECORD_ASSIGNED: ok = ok && take_assigned(&in, &r); break;
  case TRI_RECORD_TOKENS: ok = ok && take_tokens(k, &in, &message, &r); break;
  case TRI_RECORD_ENDED: ok = ok && take_ended(&in, &ended, &r); break;
  case TRI_RECORD_DIED:
  case TRI_RECORD_OVER: break;
  case TRI_RECORD_WHOLE: ok = ok && restore_whole(k, &in, kept, head.job, err); break;
  default: ok = false;
  }
  if (!ok && in.st == TRI_NO_MEMORY) return no_memory(err);
  if (!ok)
    return tri_fail(
        err, TRI_CORRUPT, "journal",
        "record %llu of the journal is none of this version: finish its jobs with the version that wrote it, "
        "or move the folder away",
        (unsigned long long)kept->number);
  /* By the wall clock, for the monotonic one begins anew with the machine. One that was set back makes records young,
   * and never future. */
  int64_t age_ms = k->wall_ms - head.wall_ms;
  tri_status st = tri_core_restore(k->core, k->now, (age_ms > 0 ? age_ms : 0) * 1000000, &r, kept->number);
  return st == TRI_OK ? st : no_memory(err);
}

tri_status tri_recorder_open(const char *folder, uint64_t segment_bytes, tri_core *core, int64_t now,
                             tri_recorder **out, tri_error *err) {
  tri_recorder *k = tri_calloc(1, sizeof *k);
  tri_journal_config cfg = {.folder = folder, .segment_bytes = segment_bytes};
  if (!k) return tri_fail(err, TRI_NO_MEMORY, "journal", "no memory");
  k->core = core;
  k->now = now;
  k->wall_ms = wall_ms();
  k->folder = tri_strdup(folder);
  tri_status st = k->folder ? tri_arena_create(ARENA_BYTES, &k->arena) : TRI_NO_MEMORY;
  if (st != TRI_OK) tri_fail(err, st, "journal", "no memory");
  if (st == TRI_OK) st = tri_journal_open(&cfg, restore, k, &k->journal, err);
  if (st != TRI_OK) {
    tri_recorder_close(k);
    return st;
  }
  k->core = NULL;
  *out = k;
  tri_core_restored(core, k->now); /* jobs that end by that are recorded */
  tri_core_durable(core, k->now, tri_journal_durable(k->journal));
  tri_recorder_tidy(k, core, now, NULL); /* a disk that is full already */
  return TRI_OK;
}

void tri_recorder_remove(tri_recorder *k) {
  if (!k) return;
  tri_journal_remove(k->journal);
  k->journal = NULL;
  tri_recorder_close(k);
}

void tri_recorder_close(tri_recorder *k) {
  if (!k) return;
  tri_journal_close(k->journal);
  tri_arena_destroy(k->arena);
  tri_free(k->folder);
  tri_buf_free(&k->record);
  tri_buf_free(&k->message);
  tri_buf_free(&k->whole);
  tri_free(k);
}
