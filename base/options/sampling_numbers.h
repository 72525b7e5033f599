/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a request, each declared once. A new one needs a row here, a member of trireme_request
 * (client/trireme.h), and, where the sampler looks at it, the kernels that do. The wire, the client library, the
 * command's option, the model's defaults and the step plan follow from the row. */
#ifndef TRI_BASE_OPTIONS_SAMPLING_NUMBERS_H
#define TRI_BASE_OPTIONS_SAMPLING_NUMBERS_H

#define TRI_DEFAULT_MAX_TOKENS 16
#define TRI_MOST_TOKENS 1048576
#define TRI_LEAST_PRIORITY -2147483648.0
#define TRI_MOST_PRIORITY 2147483647
#define TRI_MOST_DEADLINE_MS 604800000

#define TRI_NUMBER_TEXT_(x) #x
#define TRI_NUMBER_TEXT(x) TRI_NUMBER_TEXT_(x)

/* X(context, type, name, option, least, most, default, absent, sampler, help). The context is that of the list's user.
 * type: I64 or F64.
 * option: the command's spelling of the name.
 * absent: FIXED means the default. OPEN differs from every value, and the coordinator decides what it means. MODEL is
 * OPEN, and means what the model's generation_config says, else the default.
 * sampler: FLOAT or INT of tri_sample_params, or NONE. */
/* clang-format off */
#define TRI_SAMPLING_NUMBERS(X, context)                                                                               \
  X(context, I64, max_tokens, "max-tokens", -1, TRI_MOST_TOKENS, TRI_DEFAULT_MAX_TOKENS, OPEN, NONE,                   \
    "most tokens to generate; -1: as many as the context holds; not 0; default: "                                       \
    TRI_NUMBER_TEXT(TRI_DEFAULT_MAX_TOKENS))                                                                           \
  X(context, I64, min_tokens, "min-tokens", 0, TRI_MOST_TOKENS, 0, FIXED, NONE,                                        \
    "least tokens of an answer before it may end")                                                                      \
  X(context, F64, temperature, "temperature", 0, 100, 1, MODEL, FLOAT,                                                 \
    "sampling temperature; 0: the most probable token; default: the model's, else 1")                                                \
  X(context, F64, top_p, "top-p", 0, 1, 1, MODEL, FLOAT,                                                               \
    "sample from the smallest set of tokens with this much probability")                                               \
  X(context, I64, top_k, "top-k", -1, TRI_MOST_TOKENS, 0, MODEL, INT,                                                  \
    "sample from this many of the most probable tokens; 0 or -1: all")                                                        \
  X(context, F64, min_p, "min-p", 0, 1, 0, FIXED, FLOAT,                                                               \
    "exclude tokens below this fraction of the highest probability")                                                   \
  X(context, F64, repetition_penalty, "repetition-penalty", 0.01, 100, 1, MODEL, FLOAT,                                \
    "divide the logits of tokens of the prompt and the answer; 1: off")                                                     \
  X(context, F64, presence_penalty, "presence-penalty", -2, 2, 0, FIXED, FLOAT,                                        \
    "subtract from the logits of tokens of the answer")                                                          \
  X(context, F64, frequency_penalty, "frequency-penalty", -2, 2, 0, FIXED, FLOAT,                                      \
    "subtract for each occurrence of a token in the answer")                                                                            \
  X(context, I64, n, "n", 1, TRI_WIRE_MAX_N, 1, FIXED, NONE, "number of answers to the prompt")              \
  X(context, I64, num_beams, "num-beams", 1, TRI_WIRE_MAX_BEAMS, 1, OPEN, NONE,                                        \
    "number of beams of a beam search; 1: sampling; default: the model's")                         \
  X(context, F64, length_penalty, "length-penalty", -TRI_WIRE_MAX_LENGTH_PENALTY,                                      \
    TRI_WIRE_MAX_LENGTH_PENALTY, 1, OPEN, NONE,                                                                        \
    "preference of a beam search: above 0 longer answers, below 0 shorter ones")                                         \
  X(context, I64, truncate, "truncate", -1, TRI_MOST_TOKENS, 0, FIXED, NONE,                                           \
    "keep only the last tokens of a longer prompt; -1: as many as fit with max_tokens; 0: refuse it")          \
  X(context, I64, priority, "priority", TRI_LEAST_PRIORITY, TRI_MOST_PRIORITY, 0, FIXED, NONE, "lower runs first")      \
  X(context, I64, deadline_ms, "deadline-ms", 0, TRI_MOST_DEADLINE_MS, 0, FIXED, NONE,                                 \
    "give up after this many milliseconds; 0: never")                                                                   \
  X(context, I64, prompt_logprobs, "prompt-logprobs", -1, TRI_WIRE_MAX_LOGPROBS, -1, FIXED, NONE,                      \
    "log probabilities of the prompt's tokens, with this many alternatives each; -1: none")
/* clang-format on */

#define TRI_NUMBER_TYPE_I64 int64_t
#define TRI_NUMBER_TYPE_F64 double

#endif
