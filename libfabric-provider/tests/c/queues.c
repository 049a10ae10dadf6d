/* What queues, counters and reliable datagram endpoints hold: of one side alone, beyond what fits, while they are closed, and after. */
#include "datagram.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Descriptors that are open. */
static int descriptors(void) {
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (all && readdir(all)) count++;
    closedir(all);
    return count;
}

/* So many are open, once all that is being closed is. */
static void settles_at(int wanted) {
    for (int look = 0; look < 20000 && descriptors() != wanted; look++) usleep(1000);
    GIVES(descriptors(), wanted);
}

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
    /* One that cannot look, as in a forked child, says what it has counted. */
    int status;
    pid_t child = fork();
    if (child == 0) _exit(fi_cntr_read(received) != 3);
    GIVES(waitpid(child, &status, 0), child);
    GIVES(status, 0);
    /* A thread that waits sleeps. */
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    GIVES(fi_cntr_wait(received, 4, 300), -FI_ETIMEDOUT);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    SO((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 100);
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

/* One with queues of which the second alone has a wait object, and a counter; not enabled. */
static struct end unenabled(struct fid_cntr *of_receives) {
    struct end end = {0};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    NEEDS(fi_av_open(domain, NULL, &end.av, NULL));
    NEEDS(fi_cq_open(domain, NULL, &end.tx, NULL));
    NEEDS(fi_cq_open(domain, &cq, &end.rx, NULL));
    NEEDS(fi_endpoint(domain, info, &end.ep, NULL));
    NEEDS(fi_ep_bind(end.ep, &end.av->fid, 0));
    NEEDS(fi_ep_bind(end.ep, &end.tx->fid, FI_TRANSMIT));
    NEEDS(fi_ep_bind(end.ep, &end.rx->fid, FI_RECV));
    NEEDS(fi_ep_bind(end.ep, &of_receives->fid, FI_RECV));
    return end;
}

/* A counter that outlives endpoints and their queues keeps nothing of them. */
static void outlived(void) {
    int open = 0;
    struct fid_cntr *kept;
    NEEDS(fi_cntr_open(domain, NULL, &kept, NULL));
    for (int round = 0; round < 5; round++) {
        struct end end = unenabled(kept);
        NEEDS(fi_enable(end.ep));
        close_end(&end);
        if (round == 0) open = descriptors();
    }
    settles_at(open);
    GIVES(fi_close(&kept->fid), 0);
}

/* An endpoint for which there are not enough descriptors leaves nothing, and can be enabled when there are. */
static void starved(void) {
    struct rlimit all, less;
    struct fid_cntr *received;
    NEEDS(fi_cntr_open(domain, NULL, &received, NULL));
    struct end end = unenabled(received);
    int open = descriptors(), enabled = -1;
    NEEDS(getrlimit(RLIMIT_NOFILE, &all));
    for (int more = -4; more < 64 && enabled != 0; more++) {
        less = all;
        less.rlim_cur = (rlim_t)(open + more);
        NEEDS(setrlimit(RLIMIT_NOFILE, &less));
        enabled = fi_enable(end.ep);
        NEEDS(setrlimit(RLIMIT_NOFILE, &all));
        if (enabled != 0) settles_at(open);
    }
    GIVES(enabled, 0);
    close_end(&end);
    GIVES(fi_close(&received->fid), 0);
}

/* A message of a removed address that was not read is not of the address that has its number now. */
static void renumbered(void) {
    struct end a = open_end(NULL), b = open_end(NULL);
    struct sockaddr_in other = a.name;
    fi_addr_t number, source = 7;
    other.sin_port = htons(9);
    GIVES(fi_av_insert(a.av, &b.name, 1, &a.peer, 0, NULL), 1);
    for (int at = 0; at < 4; at++) {
        if (at > 0) done(b.rx, far, &source);
        if (at > 0) SO(source == (at < 3 ? FI_ADDR_NOTAVAIL : b.peer));
        if (at == 2) GIVES(fi_av_insert(b.av, &a.name, 1, &b.peer, 0, NULL), 1);
        GIVES(fi_recv(b.ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
        GIVES(fi_send(a.ep, near, 8, NULL, a.peer, near), 0);
        done(a.tx, near, NULL);
    }
    usleep(100000);
    GIVES(fi_av_remove(b.av, &b.peer, 1, 0), 0);
    GIVES(fi_av_insert(b.av, &other, 1, &number, 0, NULL), 1);
    GIVES(number, b.peer);
    done(b.rx, far, &source);
    SO(source == FI_ADDR_NOTAVAIL);
    close_end(&a);
    close_end(&b);
}

/* A long message that was claimed goes with its peer, and its context claims another one. */
static void claimed(void) {
    struct end a = open_end(NULL), b = open_end(NULL);
    struct iovec place = {far, SIZE};
    struct fi_msg_tagged look = {.msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 5, .context = far};
    for (int round = 0; round < 2; round++) {
        struct fi_cq_tagged_entry entry;
        meet(&a, &b);
        GIVES(fi_tsend(a.ep, near, SIZE, NULL, a.peer, 5, near), 0);
        for (int found = 0; !found && !failures;) {
            GIVES(fi_trecvmsg(b.ep, &look, FI_PEEK | FI_CLAIM), 0);
            found = fi_cq_sread(b.rx, &entry, 1, NULL, LONG) == 1;
            if (!found) GIVES(failed(b.rx), FI_ENOMSG);
        }
        if (round == 0) GIVES(fi_av_remove(b.av, &b.peer, 1, 0), 0);
        GIVES(fi_trecvmsg(b.ep, &look, FI_CLAIM), round == 0 ? -FI_EOPBADSTATE : 0);
        if (round > 0) break;
        GIVES(fi_av_remove(a.av, &a.peer, 1, 0), 0);
        SO(failed(a.tx));
    }
    GIVES(done(b.rx, far, NULL).len, SIZE);
    done(a.tx, near, NULL);
    close_end(&a);
    close_end(&b);
}

/* A program that only injects has no completion to read, and gets on. */
static void injects_alone(void) {
    size_t depth = info->tx_attr->size;
    info->tx_attr->size = 4;
    struct end a = open_end(NULL);
    info->tx_attr->size = depth;
    struct end b = open_end(NULL);
    meet(&a, &b);
    for (int at = 0; at < 40; at++) {
        ssize_t posted = -FI_EAGAIN;
        for (int tries = 0; posted == -FI_EAGAIN && tries < 200000; tries++) {
            posted = fi_inject(a.ep, near, 1000, a.peer);
            if (posted) usleep(100);
        }
        GIVES(posted, 0);
        if (posted) break;
    }
    close_end(&a);
    close_end(&b);
}

/* More than can be injected is refused, not tried for ever. */
static void injects_more(void) {
    struct fi_info *own = fi_dupinfo(info);
    struct fid_ep *ep;
    own->tx_attr->inject_size++;
    GIVES(fi_endpoint(domain, own, &ep, NULL), -FI_EINVAL);
    fi_freeinfo(own);
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
    outlived();
    starved();
    renumbered();
    claimed();
    injects_alone();
    injects_more();
    ignored();
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    return failures > 0;
}
