/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme template`: the prompt that a model's chat template makes of messages. */
#include <stdio.h>
#include <time.h>

#include "client/chat/chat_template.h"
#include "base/json/json_writer.h"
#include "base/mem.h"
#include "base/model_folder.h"
#include "base/options/options.h"
#include "base/standard_output.h"
#include "base/version.h"

enum { MOST_REQUEST = 64 << 20 };

struct template_options {
  const char *model, *template_file;
  bool add_generation_prompt, json;
};

static const tri_option table[] = {
    {TRI_OPT(struct template_options, model), .name = "model", .metavar = "DIR",
     .help = "model folder with chat_template.jinja or tokenizer_config.json"},
    {TRI_OPT(struct template_options, template_file), .name = "chat-template", .metavar = "FILE",
     .help = "file with a chat template to use instead of the model's; with --model, it gets the special tokens of "
             "that folder"},
    {TRI_OPT(struct template_options, add_generation_prompt), .name = "add-generation-prompt", .fallback = "true",
     .help = "end the prompt with the beginning of an answer"},
    {TRI_OPT(struct template_options, json), .name = "json",
     .help = "print the prompt, and the byte ranges of it that come from the request, as JSON"},
};

static int fail(const tri_error *err, tri_status st) {
  const char *field = tri_error_field_beside(err);
  fprintf(stderr, "trireme template: %s%s%s\n", err->message[0] ? err->message : tri_status_text(st),
          *field ? " -- " : "", field);
  return tri_exit_code(st);
}

static void print_text(const tri_jinja_output *out) { fwrite(out->text.data, 1, out->text.len, stdout); }

static tri_status print_json(const tri_jinja_output *out) {
  tri_buf b = {0};
  tri_json_open(&b, NULL, '{');
  tri_json_put_text(&b, "prompt", out->text.len ? out->text.data : "", out->text.len);
  tri_json_open(&b, "from_messages", '[');
  for (size_t i = 0; i < out->num_spans; i++)
    tri_text_printf(&b, "%s[%zu,%zu]", i ? "," : "", out->spans[i].from, out->spans[i].to);
  tri_text_add(&b, "]}\n", 3);
  if (!b.failed) fwrite(b.data, 1, b.len, stdout);
  tri_status st = b.failed ? TRI_NO_MEMORY : TRI_OK;
  tri_buf_free(&b);
  return st;
}

static tri_status open_template(const struct template_options *o, chat_template **out, tri_error *err) {
  char *source = NULL;
  size_t len;
  if (!o->template_file && !o->model)
    return tri_fail(err, TRI_USAGE, "model", "--model or --chat-template says whose template it is");
  char folder[TRI_MODEL_FOLDER];
  if (o->model) {
    TRI_CHECK(tri_model_folder_find(o->model, folder, err));
    return chat_template_load(folder, o->template_file, out, err);
  }
  tri_status st = tri_json_read_text(o->template_file, TRI_JINJA_MOST_SOURCE, &source, &len, err);
  if (st == TRI_OK) st = chat_template_make(source, len, out, err);
  tri_free(source);
  return st;
}

/* An array is the messages, an object a request like those of /v1/chat/completions.
 *
 * The clock of templates shows local time, as Python's datetime.now() does: the renderer takes its seconds as UTC,
 * hence the offset. */
static tri_status render(const struct template_options *o, const tri_json *root, tri_jinja_output *out,
                         tri_error *err) {
  chat_template *t = NULL;
  time_t now = time(NULL);
  struct tm local;
  bool is_list = tri_json_kind_of(root) == TRI_JSON_ARRAY;
  chat_request r = {.messages = is_list ? root : tri_json_get(root, "messages"),
                    .tools = tri_json_get(root, "tools"),
                    .documents = tri_json_get(root, "documents"),
                    .kwargs = tri_json_get(root, "chat_template_kwargs"),
                    .reasoning_effort = tri_json_get(root, "reasoning_effort"),
                    .add_generation_prompt = o->add_generation_prompt,
                    .now_s = localtime_r(&now, &local) ? now + local.tm_gmtoff : now};
  tri_json_as_bool(tri_json_get(root, "add_generation_prompt"), &r.add_generation_prompt);
  tri_status st = open_template(o, &t, err);
  if (st == TRI_OK) st = chat_template_render(t, &r, out, err);
  chat_template_free(t);
  return st;
}

int main(int argc, char **argv) {
  static const tri_options_spec spec = {
      .program = "trireme template",
      .usage = "--model DIR [OPTION]... [FILE]",
      TRI_OPTIONS(table),
      .summary = "Shows the prompt that a model's chat template renders from messages. FILE, or the standard input, "
                 "has a JSON "
                 "list of messages or a request to /v1/chat/completions.",
      .epilog = "Example:\n  echo '[{\"role\":\"user\",\"content\":\"Hello\"}]' | trireme template --model DIR\n",
      .max_args = 1,
      .version = "trireme template " TRIREME_VERSION,
  };
  struct template_options o = {0};
  tri_options *parsed = NULL;
  tri_json_doc *doc = NULL;
  tri_jinja_output out = {0};
  tri_error err = {0};
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  tri_status st = tri_json_read_input(tri_options_arg(parsed, 0), MOST_REQUEST, &doc, &err);
  if (st == TRI_OK) st = render(&o, tri_json_root(doc), &out, &err);
  if (st == TRI_OK && !o.json) print_text(&out);
  if (st == TRI_OK && o.json) st = print_json(&out);
  code = st == TRI_OK ? TRI_EXIT_OK : fail(&err, st);
  tri_jinja_output_free(&out);
  tri_json_free(doc);
  tri_options_free(parsed);
  return tri_stdout_end(spec.program, code);
}
