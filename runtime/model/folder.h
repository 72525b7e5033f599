/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that hold something else than a model that can be served: the words say what it is and the way out. */
#ifndef TRI_RUNTIME_MODEL_FOLDER_H
#define TRI_RUNTIME_MODEL_FOLDER_H

#include "base/json/json.h"

/* Refuses a LoRA adapter, and a file in the place of a folder. */
tri_status tri_folder_check(const char *dir, tri_error *err);
/* Says why a folder without safetensors has no weights that can be read. Never returns TRI_OK. */
tri_status tri_folder_no_weights(const char *dir, tri_error *err);
/* Returns whether there is nothing in a folder that could be weights. */
bool tri_folder_is_bare(const char *dir);
/* Returns the file of a tokenizer that lies there in a format that is not read, NULL without one. */
const char *tri_folder_other_tokenizer(const char *dir);

#endif
