/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files of a model: one, or a set NAME-00001-of-00003.gguf, of which the first has the keys. */
#ifndef TRI_BASE_GGUF_FILES_H
#define TRI_BASE_GGUF_FILES_H

#include "base/gguf.h"
#include "base/model_folder.h"

enum { TRI_GGUF_MAX_FILES = 4096 };

/* Finds a model's GGUF file, the first of a set: the path itself, or the only one of a folder without config.json.
 * *found false: the path is something else. Refuses another part of a set, and a folder with several models. */
tri_status tri_gguf_files_find(const char *model, char out[TRI_MODEL_FOLDER], bool *found, tri_error *err);
/* Opens it; *out is NULL where there is none. path: what was found. */
tri_status tri_gguf_files_open(const char *model, char path[TRI_MODEL_FOLDER], tri_gguf **out, tri_error *err);
/* Returns the files of the set that a first one belongs to, by its split.count; 1 of a file by itself. Refuses a count
 * that the name does not have. */
tri_status tri_gguf_files_count(const tri_gguf *first, const char *path, int *count, tri_error *err);
/* Writes the path of part i, counted from 0. */
void tri_gguf_files_part(const char *first, int i, int count, char out[TRI_MODEL_FOLDER]);

#endif
