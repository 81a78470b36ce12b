// A plugin of QEMU that counts the executed instructions and writes their number to stderr when the program ends.
//
// The few functions of its interface that are used are declared here, as distributions package QEMU without its header
// (include/qemu/qemu-plugin.h); they are the same in all versions of the interface. VERSION is that of the interface.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PUBLIC __attribute__((visibility("default")))

typedef uint64_t Plugin;
typedef struct qemu_plugin_tb Block;

extern void qemu_plugin_register_vcpu_tb_trans_cb(Plugin, void (*)(Plugin, Block *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(Block *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_atexit_cb(Plugin, void (*)(Plugin, void *), void *);
extern size_t qemu_plugin_tb_n_insns(const Block *);

PUBLIC int qemu_plugin_version = VERSION;

static uint64_t executed;

static void on_execution(unsigned cpu, void *instructions) {
    (void)cpu;
    __atomic_fetch_add(&executed, (uintptr_t)instructions, __ATOMIC_RELAXED);
}

static void on_translation(Plugin plugin, Block *block) {
    (void)plugin;
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_execution, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

static void on_end(Plugin plugin, void *unused) {
    (void)plugin;
    (void)unused;
    fprintf(stderr, "executed instructions: %llu\n", (unsigned long long)executed);
}

PUBLIC int qemu_plugin_install(Plugin plugin, const void *info, int count, char **arguments) {
    (void)info;
    (void)count;
    (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translation);
    qemu_plugin_register_atexit_cb(plugin, on_end, NULL);
    return 0;
}
