/* A stand-in for libnvidia-ml.so.1 that answers from a text file, named by NVML_SCENARIO and read at nvmlInit.
 *
 * One `key=value` a line. A key of a device is gpu.N.key or gpu.*.key, of a MIG slice gpu.N.mig.K.key, of an NVLink
 * gpu.N.nvlink.L.key; `*` stands for any number, the exact number wins. A value `error:15` is that nvmlReturn_t; a key
 * that is not there is "not supported" (3). Structures as in nvml.h of CUDA 13; a test compares their sizes with
 * those of the Python bindings. -DWITHOUT_… leaves a function out, as older drivers do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int nvmlReturn_t;

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999 };
enum { MAX_GPUS = 32, MAX_SLICES = 8, MAX_LINES = 512, MAX_LINKS = 36 };

typedef struct { int gpu, slice; } device_t;
typedef device_t *nvmlDevice_t;
typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { u32 version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { char busIdLegacy[16]; u32 domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } nvmlPciInfo_t;
typedef struct { u32 pid; u64 usedGpuMemory; u32 gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct { u32 fieldId, scopeId; long long timestamp, latencyUsec; u32 valueType, nvmlReturn;
                 union { double d; u32 ui; u64 ull; } value; } nvmlFieldValue_t;
typedef struct { u32 multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
                 sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount; u64 memorySizeMB; } nvmlDeviceAttributes_t;

const u32 standin_sizes[] = { sizeof(nvmlMemory_t), sizeof(nvmlMemory_v2_t), sizeof(nvmlPciInfo_t),
                              sizeof(nvmlProcessInfo_t), sizeof(nvmlFieldValue_t), sizeof(nvmlDeviceAttributes_t) };

static char keys[MAX_LINES][96], values[MAX_LINES][160];
static int lines = 0, running = 0;
static device_t boards[MAX_GPUS], slices[MAX_GPUS][MAX_SLICES];

/* --- the scenario */

static int same(const char *pattern, const char *key) {
    for (; *pattern && *key; pattern++, key++) {
        if (*pattern == '*') {
            while (key[1] >= '0' && key[1] <= '9') key++;
        } else if (*pattern != *key) {
            return 0;
        }
    }
    return !*pattern && !*key;
}

static const char *find(const char *key) {
    for (int i = 0; i < lines; i++) if (!strcmp(keys[i], key)) return values[i];
    for (int i = 0; i < lines; i++) if (strchr(keys[i], '*') && same(keys[i], key)) return values[i];
    return NULL;
}

static nvmlReturn_t text(const char *key, const char **value) {
    if (!running) return UNINITIALIZED;
    *value = find(key);
    if (!*value) return NOT_SUPPORTED;
    return strncmp(*value, "error:", 6) ? SUCCESS : atoi(*value + 6);
}

static nvmlReturn_t number(const char *key, u64 *value) {
    const char *found;
    nvmlReturn_t code = text(key, &found);
    if (code == SUCCESS) *value = strtoull(found, NULL, 0);
    return code;
}

static nvmlReturn_t key_of(nvmlDevice_t device, const char *name, char *key) {
    u64 code;
    snprintf(key, 96, "gpu.%d.error", device->gpu);
    if (number(key, &code) == SUCCESS) return (nvmlReturn_t)code;
    if (device->slice < 0) snprintf(key, 96, "gpu.%d.%s", device->gpu, name);
    else snprintf(key, 96, "gpu.%d.mig.%d.%s", device->gpu, device->slice, name);
    return SUCCESS;
}

static nvmlReturn_t device_number(nvmlDevice_t device, const char *name, u64 *value) {
    char key[96];
    nvmlReturn_t code = key_of(device, name, key);
    return code ? code : number(key, value);
}

static nvmlReturn_t device_u32(nvmlDevice_t device, const char *name, u32 *value) {
    u64 wide = 0;
    nvmlReturn_t code = device_number(device, name, &wide);
    if (code == SUCCESS) *value = (u32)wide;
    return code;
}

static nvmlReturn_t device_text(nvmlDevice_t device, const char *name, char *to, u32 length) {
    char key[96];
    const char *value;
    nvmlReturn_t code = key_of(device, name, key);
    if (code == SUCCESS) code = text(key, &value);
    if (code == SUCCESS) snprintf(to, length, "%s", value);
    return code;
}

static nvmlReturn_t pair(nvmlDevice_t device, const char *name, u32 *current, u32 *pending) {
    char later[64];
    nvmlReturn_t code = device_u32(device, name, current);
    *pending = *current;
    snprintf(later, sizeof later, "%s.pending", name);
    if (code == SUCCESS) device_u32(device, later, pending);
    return code;
}

/* --- the system */

nvmlReturn_t nvmlInitWithFlags(u32 flags) {
    char line[300];
    const char *path = getenv("NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    u64 code;
    (void)flags;
    if (!file) return UNKNOWN;
    for (lines = 0; lines < MAX_LINES && fgets(line, sizeof line, file);) {
        char *equals = strchr(line, '=');
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || !equals) continue;
        *equals = 0;
        snprintf(keys[lines], sizeof keys[0], "%s", line);
        snprintf(values[lines++], sizeof values[0], "%s", equals + 1);
    }
    fclose(file);
    for (int i = 0; i < MAX_GPUS; i++) {
        boards[i] = (device_t){ i, -1 };
        for (int k = 0; k < MAX_SLICES; k++) slices[i][k] = (device_t){ i, k };
    }
    running = 1;
    return number("init", &code) == SUCCESS && code ? (nvmlReturn_t)code : SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) {
    u64 code = 0;
    number("shutdown", &code);
    running = 0;
    return (nvmlReturn_t)code;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, u32 length) {
    const char *value;
    nvmlReturn_t code = text("driver", &value);
    if (code == SUCCESS) snprintf(version, length, "%s", value);
    return code;
}

static nvmlReturn_t cuda(int *version) {
    u64 value = 0;
    nvmlReturn_t code = number("cuda", &value);
    *version = (int)value;
    return code;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return cuda(version); }
#ifndef WITHOUT_CUDA_VERSION_V2
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda(version); }
#endif

nvmlReturn_t nvmlDeviceGetCount_v2(u32 *count) {
    u64 value = 0;
    nvmlReturn_t code = number("count", &value);
    *count = (u32)value;
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(u32 index, nvmlDevice_t *device) {
    u64 count = 0, code = 0;
    char key[96];
    number("count", &count);
    if (index >= count || index >= MAX_GPUS) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "gpu.%u.handle", index);
    if (number(key, &code) == SUCCESS && code) return (nvmlReturn_t)code;
    *device = &boards[index];
    return SUCCESS;
}

/* --- one device */

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, u32 length) { return device_text(d, "name", name, length); }
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, u32 length) { return device_text(d, "uuid", uuid, length); }

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
    u32 value = 0;
    nvmlReturn_t code = device_u32(d, "capability", &value);
    *major = (int)value / 10;
    *minor = (int)value % 10;
    return code;
}

static nvmlReturn_t pci(const char *bus, nvmlPciInfo_t *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->busId, sizeof info->busId, "%s", bus);
    sscanf(bus, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *info) {
    char bus[32];
    nvmlReturn_t code = device_text(d, "bus", bus, sizeof bus);
    return code ? code : pci(bus, info);
}

static nvmlReturn_t memory(nvmlDevice_t d, nvmlMemory_v2_t *m) {
    u64 total = 0, reserved = 0, used = 0;
    nvmlReturn_t code = device_number(d, "memory_mib", &total);
    if (code) return code;
    device_number(d, "reserved_mib", &reserved);
    device_number(d, "used_mib", &used);
    m->total = total << 20;
    m->reserved = reserved << 20;
    m->used = used << 20;
    m->free = m->total - m->reserved - m->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
    nvmlMemory_v2_t all = { 0 };
    nvmlReturn_t code = memory(d, &all);
    *m = (nvmlMemory_t){ all.total, all.free, all.used + all.reserved };
    return code;
}

#ifndef WITHOUT_MEMORY_V2
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
    return m->version == (sizeof *m | 2u << 24) ? memory(d, m) : ARGUMENT_VERSION_MISMATCH;
}
#endif

static nvmlReturn_t processes(nvmlDevice_t d, u32 *count, nvmlProcessInfo_t *list) {
    char value[160], *rest = value; /* processes=4242:20480,4243:1024 is pid:MiB; "?" for a size that is hidden */
    u32 found = 0, room = *count;
    nvmlReturn_t code = device_text(d, "processes", value, sizeof value);
    if (code == NOT_SUPPORTED) { *count = 0; return SUCCESS; }
    if (code) return code;
    for (char *one; (one = strsep(&rest, ",")); found++) {
        char *size = strchr(one, ':') + 1;
        u64 bytes = *size == '?' ? ~0ull : strtoull(size, NULL, 10) << 20;
        if (found < room && list) list[found] = (nvmlProcessInfo_t){ (u32)atoi(one), bytes, ~0u, ~0u };
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, u32 *n, nvmlProcessInfo_t *p) { return processes(d, n, p); }
#ifndef WITHOUT_PROCESSES_V3
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, u32 *n, nvmlProcessInfo_t *p) { return processes(d, n, p); }
#endif

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, u32 *now, u32 *pending) { return pair(d, "ecc", now, pending); }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, u32 *mw) { return device_u32(d, "power_mw", mw); }
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t d, u32 *mw) { return device_u32(d, "power_mw", mw); }
nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t d, u32 *mw) { return device_u32(d, "power_default_mw", mw); }
#ifndef WITHOUT_EVENT_REASONS
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, u64 *bits) { return device_number(d, "throttle", bits); }
#endif
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, u64 *bits) { return device_number(d, "throttle", bits); }

/* --- MIG */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, u32 *now, u32 *pending) { return pair(d, "mig", now, pending); }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, u32 *count) { return device_u32(d, "mig.most", count); }

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, u32 index, nvmlDevice_t *slice) {
    char key[96];
    const char *uuid;
    nvmlReturn_t code;
    if (index >= MAX_SLICES) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "gpu.%d.mig.%u.uuid", d->gpu, index);
    code = text(key, &uuid);
    if (code) return code == NOT_SUPPORTED ? NOT_FOUND : code;
    *slice = &slices[d->gpu][index];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a) {
    memset(a, 0, sizeof *a);
    device_number(d, "attributes.memory_mib", &a->memorySizeMB);
    return device_u32(d, "attributes.slices", &a->gpuInstanceSliceCount);
}

/* --- links */

static nvmlReturn_t link_u32(nvmlDevice_t d, u32 link, const char *name, u32 *value) {
    char key[64];
    u32 links = 0;
    nvmlReturn_t code = device_u32(d, "nvlinks", &links);
    if (code) return code;
    if (link >= links) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink.%u.%s", link, name);
    return device_u32(d, key, value);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, u32 link, u32 *up) { return link_u32(d, link, "up", up); }
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t d, u32 link, u32 *version) { return link_u32(d, link, "version", version); }

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, u32 link, u32 *type) {
    u32 peer; /* nvlink.L.peer=N leads to board N; without it to a switch; .type and .far are answered as they stand */
    nvmlReturn_t code = link_u32(d, link, "type", type);
    if (code != NOT_SUPPORTED) return code;
    code = link_u32(d, link, "peer", &peer);
    *type = code == SUCCESS ? 0 : 2;
    return code == NOT_SUPPORTED ? SUCCESS : code;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, u32 link, nvmlPciInfo_t *info) {
    char key[64], bus[32];
    u32 peer;
    nvmlReturn_t code;
    snprintf(key, sizeof key, "nvlink.%u.far", link);
    code = device_text(d, key, bus, sizeof bus);
    if (code != NOT_SUPPORTED) return code ? code : pci(bus, info);
    code = link_u32(d, link, "peer", &peer);
    if (code == NOT_SUPPORTED) return pci("00000000:05:00.0", info);
    return code ? code : nvmlDeviceGetPciInfo_v3(&boards[peer], info);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *fields) {
    for (int i = 0; i < count; i++) { /* only 164, the speed of one link in MB/s */
        u32 speed = 0;
        fields[i].nvmlReturn = fields[i].fieldId == 164 ? (u32)link_u32(d, fields[i].scopeId, "speed_mbps", &speed) : NOT_SUPPORTED;
        fields[i].value.ui = speed;
    }
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, u32 *generation) { return device_u32(d, "pcie.generation", generation); }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, u32 *lanes) { return device_u32(d, "pcie.lanes", lanes); }
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, u32 *lanes) { return device_u32(d, "pcie.lanes_now", lanes); }

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, u32 capability, u32 *status) {
    char key[96];
    u64 value = 0;
    nvmlReturn_t code;
    snprintf(key, sizeof key, "p2p.%d.%d.%u", a->gpu, b->gpu, capability);
    code = number(key, &value);
    *status = (u32)value;
    return code;
}

const char *nvmlErrorString(nvmlReturn_t code) { (void)code; return "stand-in"; }
