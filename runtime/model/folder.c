/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

/* Refusals that name the way out. They are looked for before config.json is: people point --model at what they have
 * downloaded, and "no config.json" would not tell them what it is. */
enum { MAX_ADAPTER_BYTES = 1 << 20, NAME_BYTES = 256 };

static bool exists(const char *dir, const char *name) {
  char path[4096 + NAME_BYTES];
  snprintf(path, sizeof path, "%.4095s/%s", dir, name);
  return !access(path, F_OK);
}

/* UNREADABLE differs from ABSENT: a folder that cannot be listed is not said to be bare. */
typedef enum search { ABSENT, FOUND, UNREADABLE } search;

/* Finds a file by the beginning and the end of its name. */
static search search_for(const char *dir, const char *begin, const char *end, char name[NAME_BYTES]) {
  search result = ABSENT;
  DIR *d = opendir(dir);
  if (!d) return UNREADABLE;
  errno = 0;
  for (struct dirent *e; result == ABSENT && (e = readdir(d));) {
    if (strncmp(e->d_name, begin, strlen(begin)) || !tri_text_ends_with(e->d_name, end)) continue;
    snprintf(name, NAME_BYTES, "%s", e->d_name);
    result = FOUND;
  }
  /* readdir returns NULL at the end and after a failure: errno, cleared above, distinguishes them. */
  if (result == ABSENT && errno) result = UNREADABLE;
  closedir(d);
  return result;
}

static bool find(const char *dir, const char *begin, const char *end, char name[NAME_BYTES]) {
  return search_for(dir, begin, end, name) == FOUND;
}

/* ---- what is no model ---- */

static tri_status refuse_adapter(const char *dir, tri_error *err) {
  tri_json_doc *doc = NULL;
  tri_error ignored = {0};
  char path[4096 + NAME_BYTES];
  snprintf(path, sizeof path, "%.4095s/adapter_config.json", dir);
  tri_json_read_file(path, MAX_ADAPTER_BYTES, &doc, &ignored);
  const char *base = doc ? tri_json_get_str(tri_json_root(doc), "base_model_name_or_path") : NULL;
  tri_status st =
      tri_fail(err, TRI_UNSUPPORTED, "model",
               "%.100s is an adapter (LoRA) of %.80s and no model of its own: merge both, with peft's "
               "AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload().save_pretrained(MERGED), and put "
               "the base's tokenizer.json beside it",
               dir, base ? base : "another model");
  tri_json_free(doc);
  return st;
}

/* A folder that is not there is no matter of this function: what opens config.json says so. An adapter is looked for
 * first, since its folder may have its base's config.json, too. */
tri_status tri_folder_check(const char *dir, tri_error *err) {
  struct stat sb;
  if (stat(dir, &sb)) return TRI_OK;
  if (!S_ISDIR(sb.st_mode))
    return tri_fail(err, TRI_UNSUPPORTED, "model",
                    "%.200s is a file: a model is a folder with config.json, or a file whose name ends with .gguf",
                    dir);
  return exists(dir, "adapter_config.json") ? refuse_adapter(dir, err) : TRI_OK;
}

tri_status tri_folder_no_weights(const char *dir, tri_error *err) {
  static const struct {
    const char *begin, *end, *what;
  } pickles[] = {{"pytorch_model", ".bin", "PyTorch's pickle"},
                 {"consolidated", ".pth", "PyTorch's pickle"},
                 {"tf_model", ".h5", "TensorFlow's format"},
                 {"flax_model", ".msgpack", "Flax's format"}};
  char name[NAME_BYTES];
  if (access(dir, F_OK)) /* only a folder that is not there may return */
    return tri_fail(err, TRI_NOT_FOUND, "model", "there is no folder %s", dir);
  for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++)
    if (find(dir, pickles[i].begin, pickles[i].end, name))
      return tri_fail(err, TRI_UNSUPPORTED, "model",
                      "%.100s has its weights in %.60s, %s, which is not read: only safetensors are. Convert it, with "
                      "transformers' AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(CONVERTED), and put "
                      "tokenizer.json beside it",
                      dir, name, pickles[i].what);
  if (find(dir, "", ".gguf", name))
    return tri_fail(err, TRI_UNSUPPORTED, "model",
                    "%.150s has a config.json without safetensors, and a GGUF file: to serve that, give it as the "
                    "model, %.150s/%.80s",
                    dir, dir, name);
  return tri_fail(err, TRI_CORRUPT, "model", "%s holds neither model.safetensors nor model.safetensors.index.json",
                  dir);
}

bool tri_folder_is_bare(const char *dir) {
  char name[NAME_BYTES];
  tri_error ignored = {0};
  return search_for(dir, "", ".safetensors", name) == ABSENT &&
         search_for(dir, "", ".safetensors.index.json", name) == ABSENT &&
         tri_folder_no_weights(dir, &ignored) == TRI_CORRUPT;
}

/* ---- tokenizers ---- */

const char *tri_folder_other_tokenizer(const char *dir) {
  static const char *const names[] = {"vocab.json", "vocab.txt"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (exists(dir, names[i])) return names[i];
  return NULL;
}
