/* What random programs draw, keep, and find wrong. */
#include "fabric.h"

#include <arpa/inet.h>
#include <signal.h>
#include <unistd.h>

#define UNKNOWN (1ULL << 50)
#define FI_OTHER 256
/* Objects of one class. */
#define MANY 10
#define SIZE (1 << 17)
/* Operations that may be outstanding. */
#define CONTEXTS (1 << 16)
/* The longest that a call may take, in seconds: what is outstanding is waited for, up to some seconds for each object. */
#define PATIENCE 60

/* Every class of objects that a program has, by the index in `objects`. */
enum { EQ, CQ, CNTR, AV, MR, EP, PEP, CLASSES };

struct object {
    struct fid *fid;
    /* Of a datagram domain; one receive of a datagram endpoint may have many completions. */
    int is_datagram, takes_many;
    uint64_t number;
    struct fi_cq_attr cq;
};

struct operation {
    /* The endpoint, by its number, and whether it has not ended. */
    uint64_t endpoint;
    int is_outstanding, completes_once;
};

static char memory[SIZE] __attribute__((aligned(64)));
static struct fi_info *infos[2];
static struct fid_fabric *fabric;
static struct fid_domain *domains[2];
static struct object objects[CLASSES][MANY];
static struct operation operations[CONTEXTS];
static uint64_t state, seed, numbers, posted, last_operation;
/* Where passive endpoints listen, and datagram endpoints are. */
static struct sockaddr_in places[2][4];
static const char *trace[64];
static long long results[64];
static unsigned traced;
static unsigned long connections, completions, errors;

/* What is drawn. */

static uint64_t draw(uint64_t below) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return below ? z % below : z;
}

static int one_in(uint64_t number) { return draw(number) == 0; }

static uint64_t some_number(void) {
    static const uint64_t odd[] = {0, 1, 2, 7, 64, 4096, 1 << 20, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    return one_in(4) ? draw(0) : one_in(2) ? draw(16) : odd[draw(sizeof odd / sizeof *odd)];
}

static size_t some_len(void) {
    static const size_t lens[] = {0, 1, 8, 64, 96, 97, 4096, 9000, 40000};
    return one_in(3) ? draw(40000) : lens[draw(sizeof lens / sizeof *lens)];
}

/* None, one or two of those that a call could know, and now and then one that none knows. */
static uint64_t some_flags(void) {
    static const uint64_t known[] = {
        FI_TRANSMIT, FI_RECV, FI_COMPLETION, FI_INJECT, FI_FENCE, FI_MORE, FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MULTI_RECV,
        FI_REMOTE_CQ_DATA, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
        FI_SELECTIVE_COMPLETION, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, UNKNOWN};
    uint64_t flags = 0;
    for (uint64_t left = draw(3); left > 0; left--) flags |= known[draw(sizeof known / sizeof *known - !one_in(8))];
    return flags;
}

static char *some_memory(size_t len) { return memory + draw(SIZE - len); }

static struct object *some(int class) {
    struct object *found = &objects[class][draw(MANY)];
    return found->fid ? found : NULL;
}

/* Mostly one of the same domain. */
static struct object *some_of(int class, int kind) {
    for (int tries = 0; tries < 8; tries++) {
        struct object *found = some(class);
        if (found && (found->is_datagram == kind || one_in(16))) return found;
    }
    return NULL;
}

static struct fid *some_fid(void) {
    struct object *found = some((int)draw(CLASSES));
    return found ? found->fid : one_in(2) ? &fabric->fid : &domains[draw(2)]->fid;
}

static struct object *free_place(int class) {
    for (int at = 0; at < MANY; at++)
        if (!objects[class][at].fid) return &objects[class][at];
    return NULL;
}

/* The descriptor of a region, or none. */
static void *some_descriptor(int kind) {
    struct object *region = some_of(MR, kind);
    return region && one_in(2) ? fi_mr_desc((struct fid_mr *)region->fid) : NULL;
}

/* Mostly where such an endpoint is. */
static struct sockaddr_in *some_place(int kind) { return &places[one_in(8) ? !kind : kind][draw(4)]; }

/* What is wrong. */

static void show(const char *what) {
    fprintf(stderr, "random %llu: %s\n", (unsigned long long)seed, what);
    for (unsigned at = traced < 64 ? 0 : traced - 64; at < traced; at++)
        fprintf(stderr, "  %s: %lld\n", trace[at % 64], results[at % 64]);
}

static void hangs(int number) {
    (void)number;
    show("a call does not end");
    abort();
}

/* A call, of which the answer is looked at. */
#define CALL(call) called(#call, (trace[traced % 64] = #call, results[traced++ % 64] = 1, (long long)(call)))

static long long called(const char *call, long long result) {
    results[(traced - 1) % 64] = result;
    if (result == -FI_OTHER) {
        show(call);
        failures++;
    }
    return result;
}

/* A context for an operation of this endpoint. */
static void *context(struct object *ep) {
    struct operation *operation = &operations[last_operation = posted++ % CONTEXTS];
    *operation = (struct operation){.endpoint = ep->number, .is_outstanding = 1, .completes_once = !ep->takes_many};
    return operation;
}

/* It was posted, or refused: then nothing is heard of it. */
#define POST(call)                                                                                          \
    do {                                                                                                    \
        if (CALL(call) != 0) operations[last_operation].is_outstanding = 0;                                 \
    } while (0)

static void completed(void *context) {
    struct operation *operation = context;
    completions++;
    if (!context) return; /* of injected bytes that failed: fi_inject has no context */
    if (operation < operations || operation >= operations + CONTEXTS || !operation->is_outstanding) {
        show("a completion of nothing");
        failures++;
    } else if (operation->completes_once) {
        operation->is_outstanding = 0;
    }
}
