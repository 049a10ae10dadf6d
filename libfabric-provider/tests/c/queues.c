/* What queues and counters of reliable datagram endpoints hold: of one side alone, beyond what fits, and while they are closed. */
#include "datagram.h"

#include <pthread.h>
#include <unistd.h>

/* A side that an endpoint does not have needs no queue. */
static struct end of_one_side(uint64_t caps, uint64_t side) {
    struct end end = {0};
    struct fi_info *own = info_with(FI_EP_RDM, caps);
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    size_t len = sizeof end.name;
    NEEDS(fi_av_open(domain, NULL, &end.av, NULL));
    NEEDS(fi_cq_open(domain, &cq, &end.tx, NULL));
    NEEDS(fi_endpoint(domain, own, &end.ep, NULL));
    NEEDS(fi_ep_bind(end.ep, &end.av->fid, 0));
    GIVES(fi_enable(end.ep), -FI_ENOCQ);
    NEEDS(fi_ep_bind(end.ep, &end.tx->fid, side));
    NEEDS(fi_enable(end.ep));
    NEEDS(fi_getname(&end.ep->fid, &end.name, &len));
    fi_freeinfo(own);
    return end;
}

static void close_one_side(struct end *end) {
    GIVES(fi_close(&end->ep->fid), 0);
    GIVES(fi_close(&end->tx->fid), 0);
    GIVES(fi_close(&end->av->fid), 0);
}

static void one_side(void) {
    struct end from = of_one_side(FI_MSG | FI_SEND, FI_TRANSMIT), to = of_one_side(FI_MSG | FI_RECV, FI_RECV);
    struct end both = of_one_side(FI_RMA | FI_READ | FI_WRITE, FI_TRANSMIT);
    GIVES(fi_av_insert(from.av, &to.name, 1, &from.peer, 0, NULL), 1);
    GIVES(fi_recv(to.ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
    GIVES(fi_send(from.ep, near, 8, NULL, from.peer, near), 0);
    done(from.tx, near, NULL);
    done(to.tx, far, NULL);
    close_one_side(&from);
    close_one_side(&to);
    close_one_side(&both);
}

static void meet(struct end *a, struct end *b) {
    GIVES(fi_av_insert(a->av, &b->name, 1, &a->peer, 0, NULL), 1);
    GIVES(fi_av_insert(b->av, &a->name, 1, &b->peer, 0, NULL), 1);
}

/* What is injected has no context by which it could be canceled, though it waits: here for a receive, of the endpoint itself. */
static void not_canceled(void) {
    struct end self = open_end(NULL);
    GIVES(fi_av_insert(self.av, &self.name, 1, &self.peer, 0, NULL), 1);
    GIVES(fi_inject(self.ep, near, 4096, self.peer), 0);
    GIVES(fi_cancel(&self.ep->fid, NULL), -FI_ENOENT);
    GIVES(fi_recv(self.ep, far, SIZE, NULL, FI_ADDR_UNSPEC, far), 0);
    GIVES(done(self.rx, far, NULL).len, 4096);
    close_end(&self);
}

/* A queue that is full does not keep completions from the other one, nor from a counter. */
static void full(void) {
    enum { DEPTH = 4, MANY = 100 };
    size_t depth = info->rx_attr->size;
    NEEDS(fi_cntr_open(domain, NULL, &counter, NULL));
    entries = 1, info->rx_attr->size = DEPTH;
    struct end b = open_end(NULL);
    struct fid_cntr *received = counter;
    entries = 0, info->rx_attr->size = depth, counter = NULL;
    struct end a = open_end(NULL);
    meet(&a, &b);
    for (int at = 0; at < 3; at++) {
        GIVES(fi_recv(b.ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
        GIVES(fi_send(a.ep, near, 8, NULL, a.peer, near), 0);
        done(a.tx, near, NULL);
    }
    GIVES(fi_recv(a.ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
    GIVES(fi_send(b.ep, near, 8, NULL, b.peer, near), 0);
    done(b.tx, near, NULL);
    done(a.rx, far, NULL);
    GIVES(fi_cntr_wait(received, 3, LONG), 0);
    /* There is an end to what is not read. */
    int posted = 3;
    while (posted < MANY && fi_recv(b.ep, far, 8, NULL, FI_ADDR_UNSPEC, far) == 0) {
        GIVES(fi_send(a.ep, near, 8, NULL, a.peer, near), 0);
        done(a.tx, near, NULL);
        GIVES(fi_cntr_wait(received, (uint64_t)++posted, LONG), 0);
    }
    GIVES(posted, 1 + DEPTH);
    for (; posted > 0; posted--) done(b.rx, far, NULL);
    GIVES(fi_recv(b.ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
    close_end(&a);
    close_end(&b);
    GIVES(fi_close(&received->fid), 0);
}

static void *wait_for_one(void *counter) {
    GIVES(fi_cntr_wait(counter, 1, 5), -FI_ETIMEDOUT);
    return NULL;
}

/* All of an endpoint is gone when it is closed, though a thread waits for its counter. */
static void closed_meanwhile(void) {
    for (int round = 0; round < 40; round++) {
        struct end end = {0};
        struct fid_cntr *waited;
        pthread_t thread;
        NEEDS(fi_cntr_open(domain, NULL, &waited, NULL));
        NEEDS(fi_av_open(domain, NULL, &end.av, NULL));
        NEEDS(fi_cq_open(domain, NULL, &end.tx, NULL));
        NEEDS(fi_endpoint(domain, info, &end.ep, NULL));
        NEEDS(fi_ep_bind(end.ep, &end.av->fid, 0));
        NEEDS(fi_ep_bind(end.ep, &end.tx->fid, FI_TRANSMIT | FI_RECV));
        NEEDS(fi_ep_bind(end.ep, &waited->fid, FI_RECV));
        NEEDS(fi_enable(end.ep));
        NEEDS(pthread_create(&thread, NULL, wait_for_one, waited));
        usleep(1000 + 37 * (unsigned)round);
        GIVES(fi_close(&end.ep->fid), 0);
        GIVES(fi_close(&end.av->fid), 0);
        NEEDS(pthread_join(thread, NULL));
        GIVES(fi_close(&end.tx->fid), 0);
        GIVES(fi_close(&waited->fid), 0);
    }
}

/* Where regions are not asked for, what names one is not looked at. */
static void ignored(void) {
    struct fi_info *asked = hints(), *own;
    struct fid_domain *of_datagrams = domain;
    asked->ep_attr->type = FI_EP_RDM;
    asked->mode = 0;
    asked->domain_attr->mr_mode &= ~FI_MR_LOCAL;
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &own));
    NEEDS(fi_domain(fabric, own, &domain, NULL));
    struct end a = open_end(NULL), b = open_end(NULL);
    void *nowhere = (void *)64;
    meet(&a, &b);
    GIVES(fi_recv(b.ep, far, SIZE, nowhere, FI_ADDR_UNSPEC, far), 0);
    GIVES(fi_send(a.ep, near, SIZE, nowhere, a.peer, near), 0);
    done(b.rx, far, NULL);
    done(a.tx, near, NULL);
    close_end(&a);
    close_end(&b);
    GIVES(fi_close(&domain->fid), 0);
    domain = of_datagrams;
    fi_freeinfo(own);
    fi_freeinfo(asked);
}

int main(void) {
    info = info_of(FI_EP_RDM);
    NEEDS(fi_fabric(info->fabric_attr, &fabric, NULL));
    NEEDS(fi_domain(fabric, info, &domain, NULL));
    one_side();
    not_canceled();
    full();
    closed_meanwhile();
    ignored();
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    return failures > 0;
}
