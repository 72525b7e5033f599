/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of models as Hugging Face's tools keep them: CACHE/models--ORG--NAME/snapshots/REVISION has the files of a
 * revision, and CACHE/models--ORG--NAME/refs/main the name of one. */
#ifndef TRI_BASE_MODEL_FOLDER_H
#define TRI_BASE_MODEL_FOLDER_H

#include "base/status.h"

enum { TRI_MODEL_FOLDER = 4096, TRI_MODEL_NAME = 257 };

/* Writes the folder that has a model's files to out: of a folder models--ORG--NAME that of refs/main, or else its only
 * snapshot; of a name ORG/NAME that is no folder here the same in this user's cache, where it lies there; of anything
 * else what was given. */
tri_status tri_model_folder_find(const char *given, char out[TRI_MODEL_FOLDER], tri_error *err);
/* Writes the name of the model in a folder: ORG/NAME of one in a cache, else the last part of the path. */
void tri_model_folder_name(const char *folder, char out[TRI_MODEL_NAME]);

#endif
