/* A libnvidia-ml.so.1 of our own: what it answers stands in a text file, read anew at each call.
 *
 * HITMAP_FAKE_NVML names the file. A line is a key and a value; what is not there has the default given below.
 *   gpus 2                      GPUs of this host
 *   0.memory.used 123           a number of GPU 0; of its MIG instance in place 1: 0.mig.1.memory.used
 *   0.mig 2                     MIG instances of GPU 0 (0: MIG is off)
 *   0.field.5 7                 a field; of a link: 0.field.204.3; its type: 0.field.5.type 1; its error: .error 4
 *   0.gpm.10 42.5               what GPM tells; its error: 0.gpm.10.error 3
 *   error.nvmlDeviceGetName 4   an error of a function; of one device only: 0.error.nvmlDeviceGetName 4
 *   0.lost_after 20             calls for GPU 0 since nvmlInit after which it is lost
 *   sleep_ms.nvmlDeviceGetName  how long a function takes
 *   log /tmp/calls              where the name of each call is added
 * Built with -DOLD it lacks what drivers before 535 lack.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#define PARTS 8
typedef struct { int gpu, part, calls, samples; } device_t; /* part: -1 for the whole GPU */
static device_t devices[16][PARTS + 1];
static int started;

static int look(const char *key, char *value, size_t size)
{
    const char *path = getenv("HITMAP_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], name[256];
    int found = 0;
    while (file && fgets(line, sizeof line, file)) {
        int at = 0;
        if (sscanf(line, "%255s %n", name, &at) == 1 && strcmp(name, key) == 0) {
            snprintf(value, size, "%s", line + at);
            value[strcspn(value, "\n")] = 0;
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static double number(const char *key, double otherwise)
{
    char value[256];
    return look(key, value, sizeof value) ? strtod(value, NULL) : otherwise;
}

static unsigned long long whole(const char *key, unsigned long long otherwise)
{
    char value[256];
    return look(key, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

static char *key_of(device_t *device, const char *what)
{
    static char key[256];
    if (device->part < 0) snprintf(key, sizeof key, "%d.%s", device->gpu, what);
    else snprintf(key, sizeof key, "%d.mig.%d.%s", device->gpu, device->part, what);
    return key;
}

/* What stands in the way of a call: its own error, the device's, or that the GPU is lost. */
static nvmlReturn_t enter(const char *function, device_t *device)
{
    char key[256], path[256];
    snprintf(key, sizeof key, "log");
    if (look(key, path, sizeof path)) {
        FILE *log = fopen(path, "a");
        if (log) { fprintf(log, "%s\n", function); fclose(log); }
    }
    snprintf(key, sizeof key, "sleep_ms.%s", function);
    double sleep_ms = number(key, 0);
    if (sleep_ms > 0) usleep((useconds_t)(1000 * sleep_ms));
    snprintf(key, sizeof key, "error.%s", function);
    int error = (int)number(key, 0);
    if (!started && !error) error = NVML_ERROR_UNINITIALIZED;
    if (!device || error) return error;
    device_t *gpu = &devices[device->gpu][0];
    gpu->calls++;
    if (gpu->calls > number(key_of(gpu, "lost_after"), 1e18)) return NVML_ERROR_GPU_IS_LOST;
    char own[300];
    snprintf(own, sizeof own, "error.%s", function);
    return (int)number(key_of(device, own), 0);
}
#define ENTER(device) do { nvmlReturn_t error = enter(__func__, (device_t *)(device)); if (error) return error; } while (0)
#define NUMBER(device, what, otherwise) number(key_of((device_t *)(device), what), otherwise)
#define WHOLE(device, what, otherwise) whole(key_of((device_t *)(device), what), otherwise)

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    started++;
    nvmlReturn_t error = enter(__func__, NULL);
    if (error) {
        started--;
        return error;
    }
    for (int gpu = 0; gpu < 16; gpu++)
        for (int part = 0; part <= PARTS; part++) devices[gpu][part] = (device_t){gpu, part - 1, 0, 0};
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown(void) { ENTER(NULL); started--; return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER(NULL); snprintf(version, length, "580.65.06"); return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    ENTER(NULL); snprintf(version, length, "13.580.65"); return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { ENTER(NULL); *count = (unsigned)number("gpus", 1); return 0; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER(&devices[index][0]); *device = (nvmlDevice_t)&devices[index][0]; return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    device_t *d = (device_t *)device;
    ENTER(device);
    if (d->part < 0) snprintf(uuid, length, "GPU-%d", d->gpu);
    else snprintf(uuid, length, "MIG-%d-%d", d->gpu, d->part);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    device_t *d = (device_t *)device;
    ENTER(device);
    snprintf(name, length, d->part < 0 ? "NVIDIA Fake" : "NVIDIA Fake MIG 1g.10gb");
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
    ENTER(device); *now = *pending = NUMBER(device, "mig", 0) > 0; return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    ENTER(device); *count = PARTS - 1; return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *part)
{
    ENTER(device);
    if (index >= NUMBER(device, "mig", 0)) return NVML_ERROR_NOT_FOUND;
    *part = (nvmlDevice_t)&devices[((device_t *)device)->gpu][index + 1];
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    ENTER(device); *id = (unsigned)((device_t *)device)->part + 7; return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    ENTER(device); *mode = NUMBER(device, "accounting", 0) > 0; return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    ENTER(device);
    memory->bar1Total = WHOLE(device, "bar1.total", 1 << 28);
    memory->bar1Used = WHOLE(device, "bar1.used", 4096);
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    ENTER(device);
    utilization->gpu = (unsigned)NUMBER(device, "utilization.gpu", 0);
    utilization->memory = (unsigned)NUMBER(device, "utilization.memory", 0);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    ENTER(device); *clock = (unsigned)NUMBER(device, type == 1 ? "clock.sm" : "clock.memory", 1000); return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    ENTER(device);
    unsigned int max = (unsigned)number("field_max", 1e6);
    for (int place = 0; place < count; place++)
        if (values[place].fieldId >= max) return NVML_ERROR_INVALID_ARGUMENT;
    for (int place = 0; place < count; place++) {
        nvmlFieldValue_t *value = &values[place];
        char key[64], more[80];
        if (value->scopeId == 0 || value->scopeId == 0xFFFFFFFFu) snprintf(key, sizeof key, "field.%u", value->fieldId);
        else snprintf(key, sizeof key, "field.%u.%u", value->fieldId, value->scopeId);
        snprintf(more, sizeof more, "%s.error", key);
        value->nvmlReturn = (nvmlReturn_t)NUMBER(device, more, 0);
        snprintf(more, sizeof more, "%s.type", key);
        value->valueType = (nvmlValueType_t)NUMBER(device, more, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
        memset(&value->value, 0, sizeof value->value);
        switch ((int)value->valueType) {
        case NVML_VALUE_TYPE_DOUBLE: value->value.dVal = NUMBER(device, key, 0); break;
        case NVML_VALUE_TYPE_UNSIGNED_INT: value->value.uiVal = (unsigned)WHOLE(device, key, 0); break;
        case NVML_VALUE_TYPE_SIGNED_INT: value->value.siVal = (int)NUMBER(device, key, 0); break;
        case NVML_VALUE_TYPE_UNSIGNED_SHORT: value->value.usVal = (unsigned short)NUMBER(device, key, 0); break;
        default: value->value.ullVal = WHOLE(device, key, 0);
        }
    }
    return NVML_SUCCESS;
}

#ifndef OLD
static nvmlReturn_t listed(device_t *device, const char *list, unsigned int *count, nvmlProcessInfo_t *infos)
{
    char key[64];
    snprintf(key, sizeof key, "%s", list);
    unsigned int there = (unsigned)NUMBER(device, key, 0), room = *count;
    *count = there;
    if (there && room < there) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int place = 0; place < there; place++) {
        snprintf(key, sizeof key, "%s.%u.pid", list, place);
        infos[place].pid = (unsigned)NUMBER(device, key, 100 + place);
        snprintf(key, sizeof key, "%s.%u.used", list, place);
        infos[place].usedGpuMemory = WHOLE(device, key, 1 << 20);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    ENTER(device);
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = WHOLE(device, "memory.total", 80ull << 30);
    memory->used = WHOLE(device, "memory.used", 1 << 30);
    memory->reserved = 512 << 20;
    memory->free = memory->total - memory->used - memory->reserved;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    ENTER(device); return listed((device_t *)device, "processes", count, infos);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    ENTER(device); return listed((device_t *)device, "mps", count, infos);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    ENTER(device); *reasons = WHOLE(device, "throttle", 0); return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    ENTER(device); *reasons = WHOLE(device, "throttle.known", 0x1ff); return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    ENTER(device);
    if (support->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    support->isSupportedDevice = NUMBER(device, "gpm.supported", 1) > 0;
    return NVML_SUCCESS;
}
struct nvmlGpmSample_st { device_t *device; int turn; };
nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    ENTER(NULL); *sample = calloc(1, sizeof **sample); return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) { ENTER(NULL); free(sample); return NVML_SUCCESS; }
static nvmlReturn_t sampled(device_t *device, nvmlGpmSample_t sample)
{
    sample->device = device; sample->turn = ++device->samples; return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    ENTER(device); return sampled((device_t *)device, sample);
}
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample)
{
    ENTER(device); return sampled(&devices[((device_t *)device)->gpu][instance - 7 + 1], sample);
}
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *wanted)
{
    device_t *device = wanted->sample2->device;
    ENTER(device);
    if (wanted->version != NVML_GPM_METRICS_GET_VERSION || wanted->sample1->device != device
        || wanted->sample2->turn != wanted->sample1->turn + 1) return NVML_ERROR_INVALID_ARGUMENT; /* each with the last */
    for (unsigned int place = 0; place < wanted->numMetrics; place++) {
        char key[64];
        snprintf(key, sizeof key, "gpm.%u.error", wanted->metrics[place].metricId);
        wanted->metrics[place].nvmlReturn = (nvmlReturn_t)NUMBER(device, key, 0);
        snprintf(key, sizeof key, "gpm.%u", wanted->metrics[place].metricId);
        wanted->metrics[place].value = NUMBER(device, key, 0);
    }
    return NVML_SUCCESS;
}
#endif

const char *nvmlErrorString(nvmlReturn_t error) { (void)error; return "made by a test"; }
