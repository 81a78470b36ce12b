/* Answers CPUID for libraries whose CPUID instructions were replaced by an undefined one of the same length (0F 04):
   as the processor does, but without vectors of 512 bits, products of 8 bits that are added in 32 (VNNI), and tiles.
   With KEEP_AVX_VNNI in the environment these products stay, in vectors of 256 bits. Preloaded; Intel, Architectures Software Developer's Manual, volume 2, CPUID, leaf 7. */

#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

enum { FEATURES = 7, LENGTH = 2 };

/* AVX512F, DQ, IFMA, PF, ER, CD, BW, VL. */
static const uint32_t VECTORS = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31;
/* AVX512_VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ. */
static const uint32_t MORE = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;
/* AVX512_4VNNIW, 4FMAPS, VP2INTERSECT, AMX-BF16, AVX512_FP16, AMX-TILE, AMX-INT8. */
static const uint32_t TILES = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;
/* Of subleaf 1: AVX-VNNI, AVX512_BF16, AMX-FP16, AVX-IFMA; AVX-VNNI-INT8, AVX-NE-CONVERT, AMX-COMPLEX,
   AVX-VNNI-INT16, AVX10. */
static const uint32_t AVX_VNNI = 1u << 4;
static uint32_t later = 1u << 4 | 1u << 5 | 1u << 21 | 1u << 23;
static const uint32_t LATEST = 1u << 4 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 19;

typedef int Setter(int, const struct sigaction *, struct sigaction *);

static int set(int number, const struct sigaction *action, struct sigaction *before)
{
    static Setter *setter;
    if (!setter)
        setter = (Setter *)dlsym(RTLD_NEXT, "sigaction");
    return setter(number, action, before);
}

static void answer(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (code[0] != 0x0F || code[1] != 0x04) {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        set(number, &usual, 0);
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], sub = (uint32_t)registers[REG_RCX], a, b, c, d;
    __cpuid_count(leaf, sub, a, b, c, d);
    if (leaf == FEATURES && sub == 0) {
        b &= ~VECTORS;
        c &= ~MORE;
        d &= ~TILES;
    } else if (leaf == FEATURES && sub == 1) {
        a &= ~later;
        d &= ~LATEST;
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += LENGTH;
    (void)info;
}

/* Takes the place of the C library's: others that want to know of undefined instructions, as Python's faulthandler
   does, are not told. */
int sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    return set(number, number == SIGILL ? 0 : action, before);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (getenv("KEEP_AVX_VNNI"))
        later &= ~AVX_VNNI;
    set(SIGILL, &action, 0);
}
