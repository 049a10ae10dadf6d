/* What a connection carries, with arguments that are odd and valid, and every order in which its parts can be closed. */
#include "fabric.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNKNOWN (1ULL << 50)
#define SIZE 4096

static char near[SIZE], far[SIZE];

/* All there is of a connection, within one process or one end of it. */
struct pair {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *listening;
    struct fid_pep *pep;
    struct side a, b;
    struct fid_mr *near, *far;
};

static void open_domain(struct pair *pair) {
    struct fi_info *asked = hints();
    uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &pair->info));
    fi_freeinfo(asked);
    NEEDS(fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL));
    NEEDS(fi_domain(pair->fabric, pair->info, &pair->domain, NULL));
    NEEDS(fi_mr_reg(pair->domain, near, SIZE, access, 0, 0, 0, &pair->near, NULL));
    NEEDS(fi_mr_reg(pair->domain, far, SIZE, access, 0, 0, 0, &pair->far, NULL));
}

static void listen_at(struct pair *pair, char address[64]) {
    size_t len = 64;
    NEEDS(fi_eq_open(pair->fabric, NULL, &pair->listening, NULL));
    NEEDS(fi_passive_ep(pair->fabric, pair->info, &pair->pep, NULL));
    NEEDS(fi_pep_bind(pair->pep, &pair->listening->fid, 0));
    NEEDS(fi_listen(pair->pep));
    NEEDS(fi_getname(&pair->pep->fid, address, &len));
}

static struct side accept_one(struct pair *pair) {
    /* A look at a request shows what the read gives. */
    struct fi_eq_cm_entry entry = {0};
    uint32_t event = 0;
    GIVES(fi_eq_sread(pair->listening, &event, &entry, sizeof entry, LONG, FI_PEEK), sizeof entry);
    GIVES(event, FI_CONNREQ);
    struct fi_info *request = next_event(pair->listening, FI_CONNREQ);
    SO(request && request == entry.info);
    struct side side = bind_side(pair->fabric, pair->domain, request);
    NEEDS(fi_accept(side.ep, NULL, 0));
    /* No request is answered twice. */
    struct fid_ep *again;
    GIVES(fi_endpoint(pair->domain, request, &again, NULL), -FI_EINVAL);
    fi_freeinfo(request);
    return side;
}

static void connect_pair(struct pair *pair) {
    char address[64];
    open_domain(pair);
    listen_at(pair, address);
    pair->a = bind_side(pair->fabric, pair->domain, pair->info);
    NEEDS(fi_connect(pair->a.ep, address, NULL, 0));
    GIVES(fi_enable(pair->a.ep), -FI_EOPBADSTATE);
    pair->b = accept_one(pair);
    next_event(pair->b.eq, FI_CONNECTED);
    next_event(pair->a.eq, FI_CONNECTED);
}

/* The next completion, which is to be good and have this context. */
static struct fi_cq_data_entry done(struct side *side, void *context) {
    struct fi_cq_data_entry entry = {0};
    GIVES(fi_cq_sread(side->cq, &entry, 1, NULL, LONG), 1);
    SO(entry.op_context == context);
    return entry;
}

static void messages(struct pair *pair) {
    void *near_desc = fi_mr_desc(pair->near), *far_desc = fi_mr_desc(pair->far);
    size_t inject = pair->info->tx_attr->inject_size, limit = pair->info->tx_attr->iov_limit;
    struct fid_ep *a = pair->a.ep, *b = pair->b.ep;
    struct iovec part = {near, 1}, *parts = calloc(limit + 1, sizeof part);
    void **descs = calloc(limit + 1, sizeof *descs);
    for (size_t at = 0; at <= limit; at++) parts[at] = part, descs[at] = near_desc;

    /* No bytes need no memory, and no region. */
    GIVES(fi_recv(b, NULL, 0, NULL, 0, NULL), 0);
    GIVES(fi_send(a, NULL, 0, NULL, 0, NULL), 0);
    GIVES(done(&pair->b, NULL).len, 0);
    done(&pair->a, NULL);
    GIVES(fi_recvv(b, NULL, NULL, 0, FI_ADDR_UNSPEC, b), 0);
    GIVES(fi_sendv(a, NULL, NULL, 0, FI_ADDR_UNSPEC, a), 0);
    done(&pair->b, b);
    done(&pair->a, a);
    GIVES(fi_recv(b, NULL, 0, NULL, 0, NULL), 0);
    GIVES(fi_inject(a, NULL, 0, 0), 0);
    done(&pair->b, NULL);

    /* As many parts as there may be, and one more. */
    GIVES(fi_recv(b, far, SIZE, far_desc, 0, NULL), 0);
    GIVES(fi_sendv(a, parts, descs, limit, 0, NULL), 0);
    GIVES(done(&pair->b, NULL).len, limit);
    done(&pair->a, NULL);
    GIVES(fi_sendv(a, parts, descs, limit + 1, 0, NULL), -FI_EINVAL);
    GIVES(fi_sendv(a, parts, descs, SIZE_MAX, 0, NULL), -FI_EINVAL);
    GIVES(fi_sendv(a, NULL, descs, 1, 0, NULL), -FI_EINVAL);

    /* Memory that is not in the region, or in none. */
    GIVES(fi_send(a, near, 1, NULL, 0, NULL), -FI_EINVAL);
    GIVES(fi_send(a, near - 1, 1, near_desc, 0, NULL), -FI_EINVAL);
    GIVES(fi_send(a, near + SIZE, 1, near_desc, 0, NULL), -FI_EINVAL);
    GIVES(fi_send(a, near, SIZE_MAX, near_desc, 0, NULL), -FI_EINVAL);
    GIVES(fi_recv(b, NULL, 8, near_desc, 0, NULL), -FI_EINVAL);

    /* What is injected has a limit, and needs no region. */
    GIVES(fi_recv(b, far, SIZE, far_desc, 0, NULL), 0);
    GIVES(fi_inject(a, near, inject, 0), 0);
    GIVES(done(&pair->b, NULL).len, inject);
    GIVES(fi_inject(a, near, inject + 1, 0), -FI_EMSGSIZE);
    GIVES(fi_inject(a, NULL, 1, 0), -FI_EINVAL);

    /* Flags, and data of which four bytes arrive. */
    struct fi_msg message = {.data = ~0ULL, .msg_iov = &part, .desc = &near_desc, .iov_count = 1};
    GIVES(fi_sendmsg(a, &message, UNKNOWN), -FI_EBADFLAGS);
    GIVES(fi_recvmsg(b, &message, UNKNOWN), -FI_EBADFLAGS);
    GIVES(fi_recvmsg(b, &message, FI_MULTI_RECV), -FI_EBADFLAGS);
    GIVES(fi_sendmsg(a, NULL, 0), -FI_EINVAL);
    GIVES(fi_recvmsg(b, NULL, 0), -FI_EINVAL);
    struct fi_msg into = {.msg_iov = &(struct iovec){far, SIZE}, .desc = &far_desc, .iov_count = 1};
    GIVES(fi_recvmsg(b, &into, FI_TRANSMIT_COMPLETE), 0);
    message.desc = NULL;
    GIVES(fi_sendmsg(a, &message, FI_INJECT | FI_FENCE | FI_COMPLETION | FI_REMOTE_CQ_DATA), 0);
    GIVES(done(&pair->b, NULL).data, 0xffffffff);
    done(&pair->a, NULL);
    free(parts);
    free(descs);
}

static void one_sided(struct pair *pair) {
    void *desc = fi_mr_desc(pair->near);
    uint64_t key = fi_mr_key(pair->far), to = (uint64_t)far;
    struct fid_ep *a = pair->a.ep;
    size_t inject = pair->info->tx_attr->inject_size;
    memset(near, 7, SIZE);
    GIVES(fi_write(a, NULL, 0, NULL, 0, to, key, NULL), 0);
    done(&pair->a, NULL);
    GIVES(fi_read(a, NULL, 0, NULL, 0, 0, 0, NULL), 0);
    done(&pair->a, NULL);
    GIVES(fi_write(a, near, SIZE, desc, 0, to, key, NULL), 0);
    done(&pair->a, NULL);
    SO(memcmp(near, far, SIZE) == 0);
    GIVES(fi_inject_write(a, near, inject, 0, to, key), 0);
    GIVES(fi_inject_write(a, near, inject + 1, 0, to, key), -FI_EMSGSIZE);
    GIVES(fi_write(a, near, 1, NULL, 0, to, key, NULL), -FI_EINVAL);

    struct iovec part = {near, 8};
    struct fi_rma_iov place = {to, 8, key};
    struct fi_msg_rma message = {.msg_iov = &part, .desc = &desc, .iov_count = 1, .rma_iov = &place};
    GIVES(fi_writemsg(a, &message, 0), -FI_EINVAL);
    message.rma_iov_count = 2;
    GIVES(fi_writemsg(a, &message, 0), -FI_EINVAL);
    message.rma_iov_count = 1;
    place.len = 9;
    GIVES(fi_writemsg(a, &message, 0), -FI_EINVAL);
    GIVES(fi_readmsg(a, &message, 0), -FI_EINVAL);
    place.len = 8;
    GIVES(fi_writemsg(a, &message, UNKNOWN), -FI_EBADFLAGS);
    GIVES(fi_readmsg(a, &message, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
    GIVES(fi_writemsg(a, NULL, 0), -FI_EINVAL);
    GIVES(fi_writemsg(a, &message, FI_DELIVERY_COMPLETE), 0);
    done(&pair->a, NULL);
    GIVES(fi_readmsg(a, &message, FI_FENCE), 0);
    done(&pair->a, NULL);
    GIVES(fi_writev(a, &part, &desc, 1, 0, to, key, NULL), 0);
    done(&pair->a, NULL);
    GIVES(fi_readv(a, &part, &desc, 1, 0, to, key, NULL), 0);
    done(&pair->a, NULL);

    /* With data a write takes a receive. */
    GIVES(fi_recv(pair->b.ep, NULL, 0, NULL, 0, NULL), 0);
    GIVES(fi_writedata(a, near, 8, desc, 5, 0, to, key, NULL), 0);
    done(&pair->a, NULL);
    GIVES(done(&pair->b, NULL).data, 5);
    GIVES(fi_recv(pair->b.ep, NULL, 0, NULL, 0, NULL), 0);
    GIVES(fi_inject_writedata(a, near, 8, 6, 0, to, key), 0);
    GIVES(done(&pair->b, NULL).data, 6);
}

/* A key that opens nothing ends the connection, and one error tells of it. */
static void refused(struct pair *pair) {
    struct fi_cq_err_entry error = {0};
    struct fi_cq_data_entry entry;
    GIVES(fi_read(pair->a.ep, near, 8, fi_mr_desc(pair->near), 0, 0, ~fi_mr_key(pair->far), pair), 0);
    GIVES(fi_cq_sread(pair->a.cq, &entry, 1, NULL, LONG), -FI_EAVAIL);
    GIVES(fi_cq_readerr(pair->a.cq, &error, 0), 1);
    GIVES(error.err, FI_EACCES);
    SO(error.op_context == pair);
    next_event(pair->b.eq, FI_SHUTDOWN);
    next_event(pair->a.eq, FI_SHUTDOWN);
}

/* What is not possible any more says so, as often as it is tried. */
static void after_the_end(struct side *side) {
    for (int times = 0; times < 2; times++) {
        GIVES(fi_shutdown(side->ep, 0), 0);
        GIVES(fi_send(side->ep, NULL, 0, NULL, 0, NULL), -FI_ENOTCONN);
        GIVES(fi_inject(side->ep, NULL, 0, 0), -FI_ENOTCONN);
        GIVES(fi_recv(side->ep, NULL, 0, NULL, 0, NULL), -FI_ENOTCONN);
        GIVES(fi_read(side->ep, NULL, 0, NULL, 0, 0, 0, NULL), -FI_ENOTCONN);
    }
}

/* Tries to close everything in this order until all is closed: what others use is busy, and nothing else is. */
static void close_all(struct pair *pair, unsigned order) {
    struct fid *all[] = {
        &pair->a.ep->fid, &pair->a.cq->fid, &pair->a.eq->fid, &pair->b.ep->fid,  &pair->b.cq->fid,   &pair->b.eq->fid,
        &pair->pep->fid,  &pair->near->fid, &pair->far->fid,  &pair->domain->fid, &pair->listening->fid, &pair->fabric->fid,
    };
    int count = sizeof all / sizeof *all, left = count;
    for (int at = count - 1; at > 0; at--) {
        int other = rand_r(&order) % (at + 1);
        struct fid *fid = all[at];
        all[at] = all[other], all[other] = fid;
    }
    for (int round = 0; left > 0 && round < count; round++)
        for (int at = 0; at < count; at++) {
            int closed = all[at] ? fi_close(all[at]) : 1;
            if (closed == 0) all[at] = NULL, left--;
            else if (closed < 0) GIVES(closed, -FI_EBUSY);
        }
    GIVES(left, 0);
    fi_freeinfo(pair->info);
}

/* An endpoint that is not enabled, bound to what it needs and to shared contexts. */
static struct side bind_shared(struct pair *pair, struct fi_info *info, struct fid_cq *cq, struct fid *srx, struct fid *stx) {
    struct side side = {.cq = cq};
    NEEDS(fi_eq_open(pair->fabric, NULL, &side.eq, NULL));
    NEEDS(fi_endpoint(pair->domain, info, &side.ep, NULL));
    NEEDS(fi_ep_bind(side.ep, &side.eq->fid, 0));
    NEEDS(fi_ep_bind(side.ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    NEEDS(fi_ep_bind(side.ep, srx, 0));
    NEEDS(fi_ep_bind(side.ep, stx, 0));
    return side;
}

/* Two endpoints take receives of one context, from which some were posted before either was there. */
static void shared_contexts(void) {
    struct pair pair;
    struct fid_ep *srx;
    struct fid_stx *stx;
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    struct fid_cq *other;
    struct side of_clients[2], side[3];
    char address[64];
    open_domain(&pair);
    pair.info->ep_attr->rx_ctx_cnt = pair.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    listen_at(&pair, address);
    void *desc = fi_mr_desc(pair.far);
    NEEDS(fi_srx_context(pair.domain, pair.info->rx_attr, &srx, NULL));
    /* For no bytes, what names a region is not looked at. */
    GIVES(fi_recv(srx, NULL, 0, (void *)64, 0, NULL), 0);
    GIVES(fi_close(&srx->fid), 0);
    NEEDS(fi_srx_context(pair.domain, pair.info->rx_attr, &srx, NULL));
    NEEDS(fi_stx_context(pair.domain, pair.info->tx_attr, &stx, NULL));
    GIVES(fi_send(srx, far, 8, desc, 0, NULL), -FI_ENOSYS);
    GIVES(fi_connect(srx, address, NULL, 0), -FI_ENOSYS);
    GIVES(fi_recv(srx, far, 8, NULL, 0, NULL), -FI_EINVAL);
    GIVES(fi_recv(srx, far, 8, desc, 0, far), 0);
    struct fi_msg into = {.msg_iov = &(struct iovec){far + 8, 8}, .desc = &desc, .iov_count = 1, .context = far + 8};
    GIVES(fi_recvmsg(srx, &into, FI_TRANSMIT_COMPLETE), 0);
    /* What waits for an endpoint is used. */
    GIVES(fi_close(&pair.far->fid), -FI_EBUSY);
    struct fid_cq *cq;
    NEEDS(fi_cq_open(pair.domain, &attr, &cq, NULL));
    NEEDS(fi_cq_open(pair.domain, &attr, &other, NULL));
    for (int at = 0; at < 2; at++) {
        of_clients[at] = open_side(pair.fabric, pair.domain, pair.info);
        NEEDS(fi_connect(of_clients[at].ep, address, NULL, 0));
        struct fi_info *request = next_event(pair.listening, FI_CONNREQ);
        side[at] = bind_shared(&pair, request, cq, &srx->fid, &stx->fid);
        GIVES(fi_close(&srx->fid), -FI_EBUSY);
        GIVES(fi_close(&stx->fid), -FI_EBUSY);
        NEEDS(fi_enable(side[at].ep));
        NEEDS(fi_accept(side[at].ep, NULL, 0));
        next_event(side[at].eq, FI_CONNECTED);
        next_event(of_clients[at].eq, FI_CONNECTED);
        fi_freeinfo(request);
        GIVES(fi_inject(of_clients[at].ep, near, 8, 0), 0);
        done(&side[at], far + 8 * at);
    }
    /* All completions of the context go to one queue. */
    side[2] = bind_shared(&pair, pair.info, other, &srx->fid, &stx->fid);
    GIVES(fi_enable(side[2].ep), -FI_EINVAL);
    GIVES(fi_recv(side[0].ep, far, 8, desc, 0, NULL), -FI_EOPBADSTATE);
    /* A receive outlives the endpoint that could have taken it, and is another's. */
    GIVES(fi_recv(srx, far, 8, desc, 0, far), 0);
    GIVES(fi_close(&side[0].ep->fid), 0);
    GIVES(fi_inject(of_clients[1].ep, near, 8, 0), 0);
    done(&side[1], far);
    /* Where no endpoint is left, a region that closes takes the receives with it, and says so. */
    GIVES(fi_recv(srx, far, 8, desc, 0, far), 0);
    GIVES(fi_close(&side[1].ep->fid), 0);
    GIVES(fi_close(&side[2].ep->fid), 0);
    GIVES(fi_close(&pair.far->fid), 0);
    struct fi_cq_data_entry entry;
    struct fi_cq_err_entry error = {0};
    GIVES(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
    GIVES(fi_cq_readerr(cq, &error, 0), 1);
    GIVES(error.err, FI_ECANCELED);
    SO(error.op_context == far);
    struct fid *all[] = {
        &srx->fid, &stx->fid, &cq->fid, &other->fid, &side[0].eq->fid, &side[1].eq->fid, &side[2].eq->fid,
        &of_clients[0].ep->fid, &of_clients[0].cq->fid, &of_clients[0].eq->fid,
        &of_clients[1].ep->fid, &of_clients[1].cq->fid, &of_clients[1].eq->fid,
        &pair.pep->fid, &pair.listening->fid, &pair.near->fid, &pair.domain->fid, &pair.fabric->fid,
    };
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) GIVES(fi_close(all[at]), 0);
    fi_freeinfo(pair.info);
}

/* An active endpoint takes the place of a passive one, and connects from its address. */
static void from_passive(void) {
    struct pair pair, from;
    char address[64], own[64], seen[64];
    size_t len = sizeof own, also = sizeof seen;
    struct fid_pep *place;
    struct fid_ep *ep;
    struct fi_info *asked = hints(), *info;
    open_domain(&pair);
    listen_at(&pair, address);
    NEEDS(fi_passive_ep(pair.fabric, pair.info, &place, NULL));
    /* A port that was free a moment ago: a listener had it. */
    from.fabric = pair.fabric, from.info = pair.info;
    listen_at(&from, own);
    asked->handle = &from.pep->fid;
    NEEDS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, asked, &info));
    SO(info->handle == &from.pep->fid);
    /* One that listens stays what it is. */
    GIVES(fi_endpoint(pair.domain, info, &ep, NULL), -FI_EOPBADSTATE);
    GIVES(fi_close(&from.pep->fid), 0);
    GIVES(fi_close(&from.listening->fid), 0);
    NEEDS(fi_setname(&place->fid, own, len));
    info->handle = &place->fid;
    pair.a = open_side(pair.fabric, pair.domain, info);
    GIVES(fi_close(&place->fid), 0);
    NEEDS(fi_connect(pair.a.ep, address, NULL, 0));
    pair.b = accept_one(&pair);
    next_event(pair.b.eq, FI_CONNECTED);
    next_event(pair.a.eq, FI_CONNECTED);
    NEEDS(fi_getpeer(pair.b.ep, seen, &also));
    SO(len == sizeof own || !memcmp(own, seen, also));
    asked->handle = NULL;
    fi_freeinfo(asked);
    info->handle = NULL;
    fi_freeinfo(info);
    close_all(&pair, 0);
}

/* The peer of a process that is killed gets an error for what it has in flight, and the end of the connection. */
static void killed(void) {
    struct pair pair;
    struct fi_cq_data_entry entry;
    struct fi_cq_err_entry error = {0};
    char address[64];
    int addresses[2];
    pid_t peer;
    NEEDS(pipe(addresses));
    peer = fork();
    if (peer == 0) {
        open_domain(&pair);
        listen_at(&pair, address);
        if (write(addresses[1], address, sizeof address) < 0) _exit(1);
        pair.b = accept_one(&pair);
        pause();
    }
    if (read(addresses[0], address, sizeof address) != sizeof address) exit(1);
    open_domain(&pair);
    pair.a = open_side(pair.fabric, pair.domain, pair.info);
    NEEDS(fi_connect(pair.a.ep, address, NULL, 0));
    next_event(pair.a.eq, FI_CONNECTED);
    /* The peer takes no message, and none comes. */
    GIVES(fi_recv(pair.a.ep, near, 8, fi_mr_desc(pair.near), 0, near), 0);
    GIVES(fi_send(pair.a.ep, near, 8, fi_mr_desc(pair.near), 0, near), 0);
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    for (int ended = 0; ended < 2; ended++) {
        GIVES(fi_cq_sread(pair.a.cq, &entry, 1, NULL, LONG), -FI_EAVAIL);
        GIVES(fi_cq_readerr(pair.a.cq, &error, 0), 1);
        SO(error.err == FI_ECANCELED || error.err == FI_ECONNRESET);
    }
    next_event(pair.a.eq, FI_SHUTDOWN);
    after_the_end(&pair.a);
    struct fid *all[] = {&pair.a.ep->fid, &pair.a.cq->fid, &pair.a.eq->fid, &pair.near->fid,
                         &pair.far->fid,  &pair.domain->fid, &pair.fabric->fid};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) GIVES(fi_close(all[at]), 0);
    fi_freeinfo(pair.info);
}

/* A look at the queue of endpoints of both kinds finds completions of both: a busy one does not keep the other waiting. */
static void of_both_kinds(void) {
    struct pair pair;
    struct fi_info *info = info_of(FI_EP_RDM);
    struct fi_cq_data_entry entries[8];
    struct fid_ep *ep;
    struct fid_av *av;
    char name[64];
    size_t len = sizeof name;
    fi_addr_t self;
    connect_pair(&pair);
    NEEDS(fi_av_open(pair.domain, NULL, &av, NULL));
    NEEDS(fi_endpoint(pair.domain, info, &ep, NULL));
    NEEDS(fi_ep_bind(ep, &av->fid, 0));
    NEEDS(fi_ep_bind(ep, &pair.a.cq->fid, FI_TRANSMIT | FI_RECV));
    NEEDS(fi_enable(ep));
    NEEDS(fi_getname(&ep->fid, name, &len));
    GIVES(fi_av_insert(av, name, 1, &self, 0, NULL), 1);
    /* All are there then, unless others have the processors. */
    unsigned wait = 100000;
    for (int found = 0; found != 3 && !failures; wait *= 2) {
        GIVES(fi_recv(ep, far, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
        GIVES(fi_send(ep, near, 8, NULL, self, NULL), 0);
        GIVES(fi_recv(pair.b.ep, far, 8, fi_mr_desc(pair.far), 0, NULL), 0);
        GIVES(fi_send(pair.a.ep, near, 8, fi_mr_desc(pair.near), 0, NULL), 0);
        done(&pair.b, NULL);
        usleep(wait);
        found = (int)fi_cq_read(pair.a.cq, entries, 8);
        for (int left = 3 - (found > 0 ? found : 0); left > 0; left--) GIVES(fi_cq_sread(pair.a.cq, entries, 1, NULL, LONG), 1);
        SO(found == 3 || wait < 10000000);
    }
    GIVES(fi_close(&ep->fid), 0);
    GIVES(fi_close(&av->fid), 0);
    fi_freeinfo(info);
    close_all(&pair, 0);
}

int main(int count, char **arguments) {
    unsigned orders = count > 1 ? (unsigned)atoi(arguments[1]) : 8;
    struct pair pair;
    /* Before this process has threads. */
    killed();
    shared_contexts();
    from_passive();
    of_both_kinds();
    connect_pair(&pair);
    messages(&pair);
    one_sided(&pair);
    refused(&pair);
    after_the_end(&pair.a);
    close_all(&pair, 0);
    for (unsigned order = 1; order < orders; order++) {
        connect_pair(&pair);
        /* A receive that waits keeps its region, until its endpoint is closed. */
        GIVES(fi_recv(pair.b.ep, far, 8, fi_mr_desc(pair.far), 0, NULL), 0);
        GIVES(fi_inject(pair.a.ep, near, 8, 0), 0);
        if (order % 2) GIVES(fi_shutdown(pair.a.ep, 0), 0);
        close_all(&pair, order);
    }
    printf("%d unexpected\n", failures);
    return failures != 0;
}
