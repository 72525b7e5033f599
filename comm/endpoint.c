#include "comm/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

tri_status tri_endpoint_resolve(const char *given, char out[TRI_ENDPOINT_BYTES], tri_error *err) {
  const char *text = given && *given ? given : getenv(TRI_ENDPOINT_ENV);
  const char *run = getenv("XDG_RUNTIME_DIR");
  struct stat sb;
  int n;
  if (text && *text)
    n = snprintf(out, TRI_ENDPOINT_BYTES, "%s", text);
  else if (run && *run == '/' && !stat(run, &sb) && S_ISDIR(sb.st_mode))
    n = snprintf(out, TRI_ENDPOINT_BYTES, "ipc://%s/trireme.sock", run);
  else
    n = snprintf(out, TRI_ENDPOINT_BYTES, "ipc:///tmp/trireme-%lu.sock", (unsigned long)getuid());
  if (n >= TRI_ENDPOINT_BYTES)
    return tri_fail(err, TRI_TOO_LARGE, "endpoint", "an endpoint has at most %d bytes", TRI_ENDPOINT_BYTES - 1);
  return TRI_OK;
}
