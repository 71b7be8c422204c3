/* redis/tls_openssl.c: finds OpenSSL and the address of each of its functions, once; for redis/tls.c. */
#include "redis/tls_openssl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define TEXT_OF(value)      #value
#define LIBRARY_OF(version) "libssl.so." TEXT_OF(version)
#define LIBRARY             LIBRARY_OF(OPENSSL_SHLIB_VERSION)

struct openssl openssl;

static const char *const names[] = {
#define OPENSSL(name) #name,
#include "redis/tls_openssl.def"
#undef OPENSSL
};
_Static_assert(sizeof openssl == N_OF(names) * sizeof(void *), "a pointer to each function, in the order of the names");

bool openssl_load(char *fault, size_t size)
{
    static bool is_loaded;
    if (is_loaded) return true;

    /* It stays until the end of the process, where it ends itself. dlsym() looks in its libcrypto, too. */
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NODELETE);
    if (library == NULL) {
        snprintf(fault, size, "needs OpenSSL, which cannot be loaded (%s); install it", dlerror());
        return false;
    }

    for (size_t i = 0; i < N_OF(names); i++) {
        void *function = dlsym(library, names[i]);
        if (function == NULL) {
            snprintf(fault, size, "needs an OpenSSL with %s, which this %s does not have; install a newer one",
                     names[i], LIBRARY);
            return false;
        }
        memcpy((char *)&openssl + i * sizeof function, &function, sizeof function);
    }
    is_loaded = true;
    return true;
}
