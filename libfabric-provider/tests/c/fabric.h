/* What the C programs here share: what a call gives is compared, and the objects of a connection are made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define PROVIDER "anyfabric"
/* As long as anything may take on a busy machine, in milliseconds. */
#define LONG 30000

static int failures;

/* Where both ends are: the address in ADDRESS, else the loopback, which no RDMA device has. */
static const char *host(void) {
    const char *set = getenv("ADDRESS");
    return set ? set : "127.0.0.1";
}

/* A call gives this. */
#define GIVES(call, wanted)                                                                                  \
    do {                                                                                                     \
        long long given_ = (long long)(call), wanted_ = (long long)(wanted);                                 \
        if (given_ != wanted_) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %lld, not %lld\n", __FILE__, __LINE__, #call, given_, wanted_);      \
            failures++;                                                                                      \
        }                                                                                                    \
    } while (0)
/* Something is so. */
#define SO(condition) GIVES(!!(condition), 1)
/* The rest makes no sense unless a call gives 0. */
#define NEEDS(call)                                                                                          \
    do {                                                                                                     \
        long long given_ = (long long)(call);                                                                \
        if (given_ != 0) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: %lld\n", __FILE__, __LINE__, #call, given_);                         \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* One side of a connection. */
struct side {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_eq *eq;
};

static struct fi_info *hints(void) {
    struct fi_info *hints = fi_allocinfo();
    if (!hints) exit(1);
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_RX_CQ_DATA;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
    hints->fabric_attr->prov_name = strdup(PROVIDER);
    return hints;
}

/* An info that no layer has changed, with these capabilities. */
static struct fi_info *info_with(enum fi_ep_type type, uint64_t caps) {
    struct fi_info *asked = hints(), *found, *all, *one;
    asked->ep_attr->type = type;
    asked->caps = caps;
    if (type == FI_EP_RDM) asked->mode = 0;
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &all));
    for (found = all; found; found = found->next)
        if (!strcmp(found->fabric_attr->prov_name, PROVIDER)) break;
    if (!found) exit(1);
    one = fi_dupinfo(found);
    fi_freeinfo(all);
    fi_freeinfo(asked);
    return one;
}

static struct fi_info *info_of(enum fi_ep_type type) {
    uint64_t of_datagrams = FI_TAGGED | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV;
    return info_with(type, FI_MSG | FI_RMA | (type == FI_EP_RDM ? of_datagrams : 0));
}

/* One that fi_connect or fi_accept enables. */
static struct side bind_side(struct fid_fabric *fabric, struct fid_domain *domain, struct fi_info *info) {
    struct side side;
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    NEEDS(fi_eq_open(fabric, NULL, &side.eq, NULL));
    NEEDS(fi_cq_open(domain, &cq, &side.cq, NULL));
    NEEDS(fi_endpoint(domain, info, &side.ep, NULL));
    NEEDS(fi_ep_bind(side.ep, &side.eq->fid, 0));
    NEEDS(fi_ep_bind(side.ep, &side.cq->fid, FI_TRANSMIT | FI_RECV));
    return side;
}

static struct side open_side(struct fid_fabric *fabric, struct fid_domain *domain, struct fi_info *info) {
    struct side side = bind_side(fabric, domain, info);
    NEEDS(fi_enable(side.ep));
    return side;
}

/* The next event of a queue, which is to be this one. */
static struct fi_info *next_event(struct fid_eq *eq, uint32_t wanted) {
    struct fi_eq_cm_entry entry = {0};
    uint32_t event = 0;
    ssize_t read = fi_eq_sread(eq, &event, &entry, sizeof entry, LONG, 0);
    if (read < (ssize_t)sizeof entry || event != wanted) {
        fprintf(stderr, "an event: %zd, %u instead of %u\n", read, event, wanted);
        exit(1);
    }
    return entry.info;
}
