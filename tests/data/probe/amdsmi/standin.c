/* A libamd_smi.so that answers from a scenario file: lines of key=value, its path in AMDSMI_SCENARIO.
 *
 * A key is looked up for one device first (`gfx.3`), then for all (`gfx`); for a pair `hops.0.3`, then `hops`.
 * `status.FUNCTION` (with a device: `status.FUNCTION.3`) makes that function fail with that amdsmi_status_t.
 * `noise=1` makes the library print. Offsets of fields come from the ctypes structures of the installed Python package
 * (layout.h, which the test writes), and every function that the package looks up and this file lacks is a stub there.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

enum { SUCCESS = 0, NOT_SUPPORTED = 2, NOT_FOUND = 31, LINES = 512, ALL = -1 };

static char lines[LINES][256];
static int count;

static const char *value(const char *key) {
    size_t n = strlen(key);
    for (int i = 0; i < count; i++)
        if (!strncmp(lines[i], key, n) && lines[i][n] == '=') return lines[i] + n + 1;
    return NULL;
}

static const char *of(int device, const char *key) {
    char one[256];
    snprintf(one, sizeof one, "%s.%d", key, device);
    const char *found = device == ALL ? NULL : value(one);
    return found ? found : value(key);
}

static const char *between(int a, int b, const char *key) {
    char one[256];
    snprintf(one, sizeof one, "%s.%d.%d", key, a < b ? a : b, a < b ? b : a);
    const char *found = value(one);
    return found ? found : value(key);
}

static uint64_t number(const char *text) { return text ? strtoull(text, NULL, 0) : 0; }

static int status(int device, const char *function) {
    char key[256];
    snprintf(key, sizeof key, "status.%s", function);
    return (int)number(of(device, key));
}

static int device_of(void *handle) { return (int)((uintptr_t)handle - 0x1000); }

static void put(void *base, size_t offset, size_t size, uint64_t word) { memcpy((char *)base + offset, &word, size); }

static void text(void *base, size_t offset, size_t size, const char *from) {
    snprintf((char *)base + offset, size, "%s", from ? from : "");
}

#define PUT(base, field, word) put(base, OFFSET_##field, SIZE_##field, word)
#define TEXT(base, field, from) text(base, OFFSET_##field, SIZE_##field, from)
#define CHECK(device) \
    do { \
        int refused = status(device, __func__); \
        if (refused) return refused; \
    } while (0)
#define NEED(name, from) \
    const char *name = (from); \
    if (!name) return NOT_SUPPORTED

int amdsmi_init(uint64_t flags) {
    (void)flags;
    const char *path = getenv("AMDSMI_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return NOT_FOUND;
    for (count = 0; count < LINES && fgets(lines[count], sizeof lines[count], file);) {
        lines[count][strcspn(lines[count], "\n")] = 0;
        if (lines[count][0] && lines[count][0] != '#') count++;
    }
    fclose(file);
    if (value("noise")) {
        printf("the library prints, and does not flush");
        fprintf(stderr, "the library complains\n");
    }
    CHECK(ALL);
    return SUCCESS;
}

int amdsmi_shut_down(void) {
    const char *mark = getenv("AMDSMI_CLOSED");
    FILE *file = mark ? fopen(mark, "w") : NULL;
    if (file) fclose(file);
    return SUCCESS;
}

static uint32_t per_socket(void) { return value("per_socket") ? (uint32_t)number(value("per_socket")) : 1; }

int amdsmi_get_socket_handles(uint32_t *n, void **handles) {
    CHECK(ALL);
    *n = (uint32_t)number(value("devices")) / per_socket();
    for (uint32_t i = 0; handles && i < *n; i++) handles[i] = (void *)(uintptr_t)(0x2000 + i);
    return SUCCESS;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *n, void **handles) {
    uint32_t first = (uint32_t)((uintptr_t)socket - 0x2000) * per_socket();
    *n = per_socket();
    for (uint32_t i = 0; handles && i < *n; i++) handles[i] = (void *)(uintptr_t)(0x1000 + first + i);
    return SUCCESS;
}

/* 0x942 for gfx942; before release 6.4 the decimal number 942 */
static uint64_t target(uint64_t gfx) {
#ifdef OFFSET_enumeration_hip_id
    return gfx;
#else
    char digits[32];
    snprintf(digits, sizeof digits, "%lx", (unsigned long)gfx);
    return strtoull(digits, NULL, 10);
#endif
}

int amdsmi_get_gpu_asic_info(void *handle, void *info) {
    int d = device_of(handle);
    CHECK(d);
    TEXT(info, asic_market_name, of(d, "name"));
    TEXT(info, asic_vendor_name, "Advanced Micro Devices Inc. [AMD/ATI]");
    TEXT(info, asic_asic_serial, of(d, "serial"));
    PUT(info, asic_vendor_id, 0x1002);
    PUT(info, asic_device_id, number(of(d, "device_id")));
    PUT(info, asic_target_graphics_version, target(number(of(d, "gfx"))));
    return SUCCESS;
}

int amdsmi_get_gpu_board_info(void *handle, void *info) {
    int d = device_of(handle);
    CHECK(d);
    NEED(name, of(d, "board"));
    TEXT(info, board_product_name, name);
    return SUCCESS;
}

int amdsmi_get_gpu_device_bdf(void *handle, uint64_t *bdf) {
    int d = device_of(handle);
    CHECK(d);
    NEED(bus, of(d, "bus"));
    *bdf = number(bus) << 8 | number(of(d, "function"));
    return SUCCESS;
}

#ifdef OFFSET_enumeration_hip_id /* not before release 6.4 */
int amdsmi_get_gpu_enumeration_info(void *handle, void *info) {
    int d = device_of(handle);
    CHECK(d);
    NEED(hip, of(d, "hip"));
    PUT(info, enumeration_hip_id, number(hip));
    TEXT(info, enumeration_hip_uuid, of(d, "uuid"));
    return SUCCESS;
}
#endif

int amdsmi_get_gpu_memory_total(void *handle, int kind, uint64_t *total) {
    int d = device_of(handle);
    CHECK(d);
    NEED(bytes, of(d, kind == 0 ? "vram_total" : kind == 2 ? "gtt_total" : "no such kind"));
    *total = number(bytes);
    return SUCCESS;
}

int amdsmi_get_gpu_memory_usage(void *handle, int kind, uint64_t *used) {
    int d = device_of(handle);
    CHECK(d);
    NEED(bytes, of(d, kind == 0 ? "vram_used" : kind == 2 ? "gtt_used" : "no such kind"));
    *used = number(bytes);
    return SUCCESS;
}

int amdsmi_get_gpu_vram_info(void *handle, void *info) {
    int d = device_of(handle);
    CHECK(d);
    NEED(mib, of(d, "vram_mib"));
    PUT(info, vram_vram_size, number(mib));
    return SUCCESS;
}

static int word(const char *from, char *out, uint32_t size) {
    if (!from) return NOT_SUPPORTED;
    text(out, 0, size, from);
    return SUCCESS;
}

int amdsmi_get_gpu_compute_partition(void *handle, char *out, uint32_t size) {
    CHECK(device_of(handle));
    return word(of(device_of(handle), "compute_partition"), out, size);
}

int amdsmi_get_gpu_memory_partition(void *handle, char *out, uint32_t size) {
    CHECK(device_of(handle));
    return word(of(device_of(handle), "memory_partition"), out, size);
}

int amdsmi_get_gpu_accelerator_partition_profile(void *handle, void *profile, uint32_t *ids) {
    int d = device_of(handle);
    NEED(parts, of(d, "profile_partitions"));
    PUT(profile, profile_profile_type, 1);
    PUT(profile, profile_num_partitions, number(parts));
    ids[0] = (uint32_t)number(of(d, "function"));
    return SUCCESS;
}

int amdsmi_get_gpu_driver_info(void *handle, void *info) {
    int d = device_of(handle);
    CHECK(d);
    TEXT(info, driver_driver_name, "amdgpu");
    TEXT(info, driver_driver_version, of(d, "driver"));
    return SUCCESS;
}

int amdsmi_get_power_cap_info(void *handle, uint32_t sensor, void *info) {
    int d = device_of(handle);
    (void)sensor;
    CHECK(d);
    NEED(cap, of(d, "power_cap"));
    PUT(info, power_power_cap, number(cap));
    PUT(info, power_default_power_cap, number(of(d, "default_power_cap")));
    return SUCCESS;
}

int amdsmi_get_gpu_ecc_enabled(void *handle, uint64_t *blocks) {
    NEED(mask, of(device_of(handle), "ecc"));
    *blocks = number(mask);
    return SUCCESS;
}

int amdsmi_get_gpu_process_list(void *handle, uint32_t *n, void *list) {
    NEED(bytes, of(device_of(handle), "process_bytes"));
    PUT(list, process_pid, 4242);
    put(list, OFFSET_process_memory_usage + OFFSET_usage_vram_mem, 8, number(bytes));
    *n = 1;
    return SUCCESS;
}

int amdsmi_get_pcie_info(void *handle, void *info) {
    NEED(lanes, of(device_of(handle), "pcie_width"));
    put(info, OFFSET_pcie_pcie_static + OFFSET_slot_max_pcie_width, SIZE_slot_max_pcie_width, number(lanes));
    put(info, OFFSET_pcie_pcie_static + OFFSET_slot_max_pcie_speed, SIZE_slot_max_pcie_speed,
        number(of(device_of(handle), "pcie_speed")));
    return SUCCESS;
}

int amdsmi_topo_get_link_type(void *one, void *other, uint64_t *hops, uint32_t *type) {
    int a = device_of(one), b = device_of(other);
    CHECK(a);
    NEED(kind, between(a, b, "link_type"));
    *type = (uint32_t)number(kind);
    *hops = between(a, b, "hops") ? number(between(a, b, "hops")) : 1;
    return SUCCESS;
}

int amdsmi_get_minmax_bandwidth_between_processors(void *one, void *other, uint64_t *least, uint64_t *most) {
    int a = device_of(one), b = device_of(other);
    CHECK(a);
    NEED(rate, between(a, b, "max_bandwidth"));
    *most = number(rate);
    *least = number(between(a, b, "min_bandwidth"));
    return SUCCESS;
}

#ifdef SIZEOF_port
/* `port_rate.0.3` in Gb/s and `port_lane`, `ports` links to each peer (else one); `port_unnamed=1`: no peer is named */
int amdsmi_get_link_metrics(void *handle, void *metrics) {
    int d = device_of(handle);
    CHECK(d);
    uint32_t n = 0, links = value("ports") ? (uint32_t)number(value("ports")) : 1;
    for (int p = 0; p < (int)number(value("devices")); p++) {
        const char *rate = between(d, p, "port_rate");
        for (uint32_t i = 0; p != d && rate && i < links && n < SIZE_metrics_links / SIZEOF_port; i++, n++) {
            char *port = (char *)metrics + OFFSET_metrics_links + n * SIZEOF_port;
            PUT(port, port_bdf, value("port_unnamed") ? 0 : number(of(p, "bus")) << 8);
            PUT(port, port_bit_rate, number(value("port_lane")));
            PUT(port, port_max_bandwidth, number(rate));
        }
    }
    PUT(metrics, metrics_num_links, n);
    return n ? SUCCESS : NOT_SUPPORTED;
}
#endif

int amdsmi_is_P2P_accessible(void *one, void *other, bool *accessible) {
    NEED(yes, between(device_of(one), device_of(other), "p2p"));
    *accessible = number(yes) != 0;
    return SUCCESS;
}
