/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: how an encoder makes one vector of a text, as options, config.json and the files of a sentence-transformers
 * folder (modules.json and what it names) say. */
#ifndef TRI_RUNTIME_MODEL_SENTENCE_H
#define TRI_RUNTIME_MODEL_SENTENCE_H

#include "runtime/model/config.h"

/* Settles how an encoder without a classifier pools, and reads what the folder says of it into c->sentence; other
 * models have no choice. wish: NONE for what the folder says; where it says nothing, the checkpoint's pooler, else the
 * mean. A folder with modules that would change the vectors and are not supported is refused by their names; a wish
 * takes the place of a pooling that is not. On an error c may have been changed in part. */
tri_status tri_model_config_pool(const char *dir, tri_pooling wish, tri_model_config *c, tri_error *err);

#endif
