/* What the C programs of reliable datagram endpoints share. */
#include "fabric.h"

#include <netinet/in.h>

#define SIZE 65536

static char near[SIZE], all[SIZE + 8], *far = all + 8;

/* One endpoint, with queues of its own for both sides. */
struct end {
    struct fid_ep *ep;
    struct fid_cq *tx, *rx;
    struct fid_av *av;
    struct sockaddr_in name;
    fi_addr_t peer;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
/* Of queues that are opened, where it is set; and a counter of receives. */
static size_t entries;
static struct fid_cntr *counter;

/* One, where it is asked for: NULL leaves it to the provider. */
static struct end open_end(struct sockaddr_in *place) {
    struct end end = {0};
    struct fi_cq_attr cq = {.size = entries, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    struct fi_av_attr av = {.flags = FI_SYMMETRIC}, named = {.name = "shared"};
    size_t len = sizeof end.name;
    GIVES(fi_av_open(domain, &named, &end.av, NULL), -FI_ENOSYS);
    NEEDS(fi_av_open(domain, &av, &end.av, NULL));
    GIVES(av.type, FI_AV_TABLE);
    NEEDS(fi_cq_open(domain, &cq, &end.tx, NULL));
    NEEDS(fi_cq_open(domain, &cq, &end.rx, NULL));
    NEEDS(fi_endpoint(domain, info, &end.ep, NULL));
    if (place) GIVES(fi_setname(&end.ep->fid, place, sizeof *place), 0);
    GIVES(fi_enable(end.ep), -FI_ENOAV);
    NEEDS(fi_ep_bind(end.ep, &end.av->fid, 0));
    GIVES(fi_enable(end.ep), -FI_ENOCQ);
    GIVES(fi_send(end.ep, near, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
    NEEDS(fi_ep_bind(end.ep, &end.tx->fid, FI_TRANSMIT));
    NEEDS(fi_ep_bind(end.ep, &end.rx->fid, FI_RECV));
    if (counter) NEEDS(fi_ep_bind(end.ep, &counter->fid, FI_RECV));
    NEEDS(fi_enable(end.ep));
    NEEDS(fi_getname(&end.ep->fid, &end.name, &len));
    GIVES(len, sizeof end.name);
    GIVES(fi_connect(end.ep, &end.name, NULL, 0), -FI_ENOSYS);
    return end;
}

/* The next completion of a queue, which is to be good. */
static struct fi_cq_tagged_entry done(struct fid_cq *cq, void *context, fi_addr_t *source) {
    struct fi_cq_tagged_entry entry = {0};
    fi_addr_t from;
    ssize_t read = fi_cq_sreadfrom(cq, &entry, 1, source ? source : &from, NULL, LONG);
    GIVES(read, 1);
    if (read == 1) SO(entry.op_context == context);
    return entry;
}

/* What is posted until there is room for it. */
#define POSTS(call)                                                                                          \
    do {                                                                                                     \
        long long posted_;                                                                                   \
        while ((posted_ = (call)) == -FI_EAGAIN) {}                                                          \
        GIVES(posted_, 0);                                                                                   \
    } while (0)

static int failed(struct fid_cq *cq) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    GIVES(fi_cq_sread(cq, &entry, 1, NULL, LONG), -FI_EAVAIL);
    GIVES(fi_cq_readerr(cq, &error, 0), 1);
    return error.err;
}

static void close_end(struct end *end) {
    GIVES(fi_close(&end->av->fid), -FI_EBUSY);
    GIVES(fi_close(&end->ep->fid), 0);
    GIVES(fi_close(&end->tx->fid), 0);
    GIVES(fi_close(&end->rx->fid), 0);
    GIVES(fi_close(&end->av->fid), 0);
}
