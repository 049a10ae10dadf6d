/* What reliable datagram endpoints do without a layer between, with arguments that are odd and valid. */
#include "datagram.h"

#include <arpa/inet.h>
#include <unistd.h>

#define UNKNOWN (1ULL << 50)

/* What is asked for is granted if it is there, and nothing else is. */
static void granted(void) {
    struct fi_info *asked = hints(), *found;
    uint64_t orders[] = {FI_ORDER_SAS, FI_ORDER_WAR, FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW};
    asked->ep_attr->type = FI_EP_RDM;
    asked->mode = 0;
    asked->caps |= FI_TAGGED | FI_COLLECTIVE;
    GIVES(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, asked, &found), -FI_ENODATA);
    asked->caps = FI_TAGGED | FI_RMA | FI_ATOMIC;
    for (int threading = FI_THREAD_SAFE; threading <= FI_THREAD_ENDPOINT; threading++) {
        asked->domain_attr->threading = (enum fi_threading)threading;
        asked->tx_attr->msg_order = orders[threading % 3];
        NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found));
        GIVES(found->domain_attr->threading, threading);
        GIVES(found->tx_attr->msg_order & orders[threading % 3], orders[threading % 3]);
        GIVES(found->ep_attr->max_order_war_size > 0, threading % 3 == 1);
        /* Completions come as operations end. */
        GIVES(found->tx_attr->comp_order | found->rx_attr->comp_order, FI_ORDER_NONE);
        fi_freeinfo(found);
    }
    /* Behind an atomic things are in order only where that is asked for. */
    asked->tx_attr->msg_order = FI_ORDER_WAW;
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found));
    GIVES(found->tx_attr->msg_order & (FI_ORDER_WAW | FI_ORDER_RAW | FI_ORDER_SAW | FI_ORDER_RMA_RAW),
          FI_ORDER_WAW | FI_ORDER_RMA_RAW);
    fi_freeinfo(found);
    /* What a read is to be in front of waits for it, which sends do not. */
    asked->tx_attr->msg_order = FI_ORDER_SAR;
    GIVES(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found), -FI_ENODATA);
    asked->tx_attr->msg_order = 0;
    asked->domain_attr->threading = (enum fi_threading)77;
    GIVES(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found), -FI_ENODATA);
    asked->domain_attr->threading = FI_THREAD_UNSPEC;
    asked->rx_attr->comp_order = FI_ORDER_STRICT;
    GIVES(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found), -FI_ENODATA);
    asked->rx_attr->comp_order = 0;
    asked->ep_attr->protocol = FI_PROTO_RXD;
    GIVES(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found), -FI_ENODATA);
    asked->ep_attr->protocol = 0;
    asked->rx_attr->op_flags = FI_TRANSMIT_COMPLETE;
    asked->caps |= FI_FENCE;
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found));
    SO(found->tx_attr->caps & FI_FENCE);
    asked->ep_attr->protocol = found->ep_attr->protocol;
    fi_freeinfo(found);
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found));
    fi_freeinfo(found);
    fi_freeinfo(asked);
    /* A program that asks for nothing, and registers nothing, is no target. */
    asked = fi_allocinfo();
    asked->ep_attr->type = FI_EP_RDM;
    asked->fabric_attr->prov_name = strdup(PROVIDER);
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &found));
    GIVES(found->caps & (FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE), FI_RMA);
    GIVES(found->domain_attr->mr_mode, 0);
    fi_freeinfo(found);
    fi_freeinfo(asked);
}

/* Two nodes with the ports 9 and 10, the first of which is there. */
static void symmetric_addresses(struct end *a) {
    fi_addr_t numbers[4], again;
    struct sockaddr_in first, last;
    size_t len = sizeof first;
    int errors[4];
    GIVES(fi_av_insertsym(a->av, host(), 2, "9", 2, numbers, FI_SYNC_ERR, errors), 4);
    GIVES(errors[0] | errors[1] | errors[2] | errors[3], 0);
    GIVES(fi_av_insertsvc(a->av, host(), "9", &again, 0, NULL), 1);
    GIVES(numbers[0], again);
    GIVES(fi_av_lookup(a->av, numbers[0], &first, &len), 0);
    GIVES(fi_av_lookup(a->av, numbers[3], &last, &len), 0);
    GIVES(ntohl(last.sin_addr.s_addr), ntohl(first.sin_addr.s_addr) + 1);
    GIVES(ntohs(last.sin_port), 10);
    GIVES(fi_av_remove(a->av, numbers, 4, 0), 0);
    GIVES(fi_av_remove(a->av, &again, 1, 0), 0);
    /* The second port is none. */
    GIVES(fi_av_insertsym(a->av, host(), 1, "65535", 2, numbers, FI_SYNC_ERR, errors), 1);
    GIVES(errors[0], 0);
    GIVES(errors[1], FI_EINVAL);
    SO(numbers[1] == FI_ADDR_NOTAVAIL);
    GIVES(fi_av_remove(a->av, numbers, 1, 0), 0);
    GIVES(fi_av_insertsym(a->av, host(), 1, NULL, 1, numbers, 0, NULL), -FI_EINVAL);
    GIVES(fi_av_insertsym(a->av, host(), SIZE_MAX, "9", 2, numbers, 0, NULL), -FI_EINVAL);
    GIVES(fi_av_insertsym(a->av, host(), 0, "9", 2, numbers, 0, NULL), 0);
}

static void addresses(struct end *a, struct end *b) {
    fi_addr_t numbers[3], again;
    struct sockaddr_in many[3] = {b->name, b->name, b->name}, found;
    size_t len = sizeof found;
    char text[64], named[64];
    int errors[3];
    many[1].sin_port = htons(9), many[2].sin_family = AF_UNIX;
    GIVES(fi_av_insert(a->av, many, 3, numbers, FI_SYNC_ERR, errors), 2);
    GIVES(numbers[0], 0);
    GIVES(numbers[1], 1);
    SO(numbers[2] == FI_ADDR_NOTAVAIL);
    GIVES(errors[0] | errors[1], 0);
    GIVES(errors[2], FI_EINVAL);
    GIVES(fi_av_insert(a->av, &b->name, 1, &again, 0, NULL), 1);
    GIVES(again, 0);
    GIVES(fi_av_insert(a->av, &b->name, 1, NULL, UNKNOWN, NULL), -FI_EBADFLAGS);
    GIVES(fi_av_insertsvc(a->av, host(), "9", &again, 0, NULL), 1);
    GIVES(again, 1);
    snprintf(text, sizeof text, "fi_sockaddr_in://%s:9", host());
    GIVES(fi_av_insertsvc(a->av, text, NULL, &again, 0, NULL), 1);
    GIVES(again, 1);
    GIVES(fi_av_remove(a->av, &again, 1, 0), 0);
    symmetric_addresses(a);
    GIVES(fi_av_lookup(a->av, 0, &found, &len), 0);
    SO(!memcmp(&found, &b->name, sizeof found));
    GIVES(fi_av_lookup(a->av, 7, &found, &len), -FI_EINVAL);
    len = sizeof text;
    SO(fi_av_straddr(a->av, &b->name, text, &len) == text);
    snprintf(named, sizeof named, "fi_sockaddr_in://%s:", host());
    SO(!strncmp(text, named, strlen(named)));
    GIVES(fi_av_remove(a->av, &numbers[1], 1, 0), 0);
    GIVES(fi_av_remove(a->av, &numbers[1], 1, 0), 0);
    GIVES(fi_av_remove(a->av, &numbers[1], 1, 0), -FI_EINVAL);
    GIVES(fi_send(a->ep, near, 1, NULL, numbers[1], NULL), -FI_EINVAL);
    /* The lowest free number is the next one. */
    many[0].sin_port = htons(10), many[1].sin_port = htons(11);
    GIVES(fi_av_insert(a->av, many, 2, numbers, 0, NULL), 2);
    GIVES(fi_av_remove(a->av, numbers, 2, 0), 0);
    GIVES(fi_av_insert(a->av, many, 1, &again, 0, NULL), 1);
    GIVES(again, 1);
    GIVES(fi_av_remove(a->av, &again, 1, 0), 0);
    GIVES(fi_av_insert(b->av, &a->name, 1, &b->peer, 0, NULL), 1);
    a->peer = 0;
}

static void messages(struct end *a, struct end *b) {
    fi_addr_t source = 7;
    struct fi_cq_tagged_entry entry;
    size_t inject = info->tx_attr->inject_size;
    /* No buffer is registered: short, in one piece, and long. */
    size_t sizes[] = {0, 1, inject, inject + 1, 5000, SIZE};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        memset(near, (int)at + 1, SIZE);
        GIVES(fi_recv(b->ep, far, SIZE, NULL, FI_ADDR_UNSPEC, far), 0);
        GIVES(fi_send(a->ep, near, sizes[at], NULL, a->peer, near), 0);
        entry = done(b->rx, far, &source);
        GIVES(entry.len, sizes[at]);
        GIVES(source, b->peer);
        SO(entry.flags & FI_RECV && entry.flags & FI_MSG);
        SO(!memcmp(near, far, sizes[at]));
        done(a->tx, near, NULL);
    }
    struct fi_msg into = {.msg_iov = &(struct iovec){far, 8}, .iov_count = 1, .addr = b->peer};
    GIVES(fi_recvmsg(b->ep, &into, FI_TRANSMIT_COMPLETE), 0);
    GIVES(fi_senddata(a->ep, near, 9, NULL, ~0ULL, a->peer, NULL), 0);
    GIVES(failed(b->rx), FI_ETRUNC);
    done(a->tx, NULL, NULL);
    GIVES(fi_inject(a->ep, near, inject + 1, a->peer), -FI_EMSGSIZE);
    GIVES(fi_send(a->ep, near, 1, NULL, 77, NULL), -FI_EINVAL);
    GIVES(fi_recv(b->ep, far, 8, NULL, 77, NULL), -FI_EINVAL);
    struct iovec parts[2] = {{near, 1}, {near, 1}};
    GIVES(fi_sendv(a->ep, parts, NULL, 2, a->peer, NULL), -FI_EINVAL);

    /* A receive is canceled once, and has one completion. */
    GIVES(fi_recv(b->ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
    GIVES(fi_cancel(&b->ep->fid, near), -FI_ENOENT);
    GIVES(fi_cancel(&b->ep->fid, far), 0);
    GIVES(failed(b->rx), FI_ECANCELED);
    GIVES(fi_cancel(&b->ep->fid, far), -FI_ENOENT);
}

/* Short buffers that are not registered: more than there are places of the provider's for, which are used again. */
static void copied(struct end *a, struct end *b) {
    enum { COUNT = 1500, LEN = 40 };
    struct fi_cq_tagged_entry entry;
    for (int round = 0; round < 2; round++) {
        memset(far, 0, SIZE);
        for (int at = 0; at < COUNT; at++) GIVES(fi_recv(b->ep, far + LEN * at, LEN, NULL, FI_ADDR_UNSPEC, far + at), 0);
        for (int at = 0; at < COUNT; at++) {
            memset(near, at + 1, LEN);
            POSTS(fi_send(a->ep, near, at % LEN, NULL, a->peer, near));
            done(a->tx, near, NULL);
            entry = done(b->rx, far + at, NULL);
            GIVES(entry.len, at % LEN);
            SO(!memcmp(far + LEN * at, near, at % LEN) && !far[LEN * at + at % LEN]);
        }
    }
    /* What fits of a longer one comes, and nothing behind it. */
    memset(near, 5, SIZE), memset(far, 6, SIZE);
    GIVES(fi_recv(b->ep, far, 200, NULL, FI_ADDR_UNSPEC, far), 0);
    GIVES(fi_send(a->ep, near, 5000, NULL, a->peer, near), 0);
    GIVES(failed(b->rx), FI_ETRUNC);
    done(a->tx, near, NULL);
    SO(!memcmp(far, near, 200) && far[200] == 6);
    /* The longest one. */
    GIVES(fi_recv(b->ep, far, 8192, NULL, FI_ADDR_UNSPEC, far), 0);
    GIVES(fi_send(a->ep, near, 8192, NULL, a->peer, near), 0);
    GIVES(done(b->rx, far, NULL).len, 8192);
    done(a->tx, near, NULL);
    SO(!memcmp(far, near, 8192) && far[8192] == 6);
}

/* What is injected may be changed at once, and has no completion; here more at once than buffers have places for copies. */
static void injected(struct end *a, struct end *b) {
    enum { COUNT = 2400 };
    size_t inject = info->tx_attr->inject_size, sizes[] = {0, 1, 96, 97, 4096, inject};
    struct fi_cq_tagged_entry entry;
    SO(inject >= 4096);
    for (int at = 0; at < 100; at++) GIVES(fi_trecv(a->ep, far, 8, NULL, FI_ADDR_UNSPEC, 0xff, 0, far), 0);
    for (int at = 0; at < COUNT; at++) {
        size_t size = sizes[at % 6];
        memset(near, at + 1, size);
        if (at % 2) POSTS(fi_inject(a->ep, near, size, a->peer));
        else POSTS(fi_tinject(a->ep, near, size, a->peer, at));
        memset(near, 0, size);
    }
    for (int at = 0; at < COUNT; at++) {
        size_t size = sizes[at % 6];
        if (at % 2) GIVES(fi_recv(b->ep, far, SIZE, NULL, FI_ADDR_UNSPEC, far), 0);
        else GIVES(fi_trecv(b->ep, far, SIZE, NULL, FI_ADDR_UNSPEC, at, 0, far), 0);
        entry = done(b->rx, far, NULL);
        GIVES(entry.len, size);
        memset(near, at + 1, size);
        SO(!memcmp(near, far, size));
    }
    GIVES(fi_cq_read(a->tx, &entry, 1), -FI_EAGAIN);
    for (int at = 0; at < 100; at++) {
        GIVES(fi_cancel(&a->ep->fid, far), 0);
        GIVES(failed(a->rx), FI_ECANCELED);
    }
    /* The same of a message with a completion. */
    struct iovec place = {near, 5000};
    struct fi_msg message = {.msg_iov = &place, .iov_count = 1, .addr = a->peer, .context = near};
    memset(near, 7, 5000);
    GIVES(fi_recv(b->ep, far, SIZE, NULL, FI_ADDR_UNSPEC, far), 0);
    GIVES(fi_sendmsg(a->ep, &message, FI_INJECT), 0);
    memset(near, 0, 5000);
    GIVES(done(b->rx, far, NULL).len, 5000);
    done(a->tx, near, NULL);
    SO(far[0] == 7 && far[4999] == 7);
}

static void tagged(struct end *a, struct end *b) {
    struct fi_cq_tagged_entry entry;
    struct fi_msg_tagged look = {.addr = FI_ADDR_UNSPEC, .tag = 0x17, .ignore = 0xf, .context = far};
    struct iovec place = {far, SIZE};
    GIVES(fi_trecvmsg(b->ep, &look, FI_PEEK), 0);
    GIVES(failed(b->rx), FI_ENOMSG);
    GIVES(fi_tsenddata(a->ep, near, 5000, NULL, 3, a->peer, 0x12, near), 0);
    done(a->tx, near, NULL);
    do {
        GIVES(fi_trecvmsg(b->ep, &look, FI_PEEK | FI_CLAIM), 0);
        ssize_t read = fi_cq_sread(b->rx, &entry, 1, NULL, LONG);
        if (read == 1) break;
        GIVES(failed(b->rx), FI_ENOMSG);
    } while (1);
    GIVES(entry.len, 5000);
    GIVES(entry.tag, 0x12);
    GIVES(entry.data, 3);
    /* No receive meets it now. */
    GIVES(fi_trecvmsg(b->ep, &look, FI_PEEK), 0);
    GIVES(failed(b->rx), FI_ENOMSG);
    look.msg_iov = &place, look.iov_count = 1;
    GIVES(fi_trecvmsg(b->ep, &look, FI_CLAIM), 0);
    entry = done(b->rx, far, NULL);
    GIVES(entry.len, 5000);
    SO(entry.flags & FI_TAGGED);
    GIVES(fi_trecvmsg(b->ep, &look, FI_CLAIM), -FI_EINVAL);
    /* One that is dropped needs no memory. */
    GIVES(fi_tsend(a->ep, near, 5000, NULL, a->peer, 0x12, near), 0);
    done(a->tx, near, NULL);
    do {
        GIVES(fi_trecvmsg(b->ep, &look, FI_PEEK | FI_CLAIM), 0);
        if (fi_cq_sread(b->rx, &entry, 1, NULL, LONG) == 1) break;
        GIVES(failed(b->rx), FI_ENOMSG);
    } while (1);
    place = (struct iovec){NULL, 8};
    GIVES(fi_trecvmsg(b->ep, &look, FI_CLAIM | FI_DISCARD), 0);
    done(b->rx, far, NULL);
    GIVES(fi_trecvmsg(b->ep, &look, FI_CLAIM | FI_DISCARD), -FI_EINVAL);
    GIVES(fi_trecvmsg(b->ep, &look, UNKNOWN), -FI_EBADFLAGS);
    GIVES(fi_trecvmsg(b->ep, &look, FI_MULTI_RECV), -FI_EBADFLAGS);
}

static void many(struct end *a, struct end *b) {
    size_t min = 16, len = sizeof min;
    struct iovec place = {far, 40};
    struct fi_msg buffer = {.msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = far};
    GIVES(fi_setopt(&b->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof min), 0);
    GIVES(fi_getopt(&b->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, &len), 0);
    GIVES(min, 16);
    GIVES(fi_recvmsg(b->ep, &buffer, FI_MULTI_RECV), 0);
    for (int at = 0; at < 2; at++) {
        POSTS(fi_inject(a->ep, near, 15, a->peer));
        struct fi_cq_tagged_entry entry = done(b->rx, far, NULL);
        SO((char *)entry.buf == far + 15 * at);
        SO(!(entry.flags & FI_MULTI_RECV));
    }
    GIVES(done(b->rx, far, NULL).flags, FI_MULTI_RECV);
}

static void one_sided(struct end *a, struct end *b) {
    static uint64_t word, old, one = 1, expected = 6, new_one = 9;
    struct fid_mr *mr, *words;
    struct fi_atomic_attr attr;
    size_t count;
    word = 5;
    NEEDS(fi_mr_reg(domain, far, SIZE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
    NEEDS(fi_mr_reg(domain, &word, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &words, NULL));
    memset(near, 33, SIZE);
    GIVES(fi_write(a->ep, near, SIZE, NULL, a->peer, (uintptr_t)far, fi_mr_key(mr), near), 0);
    SO(done(a->tx, near, NULL).flags & FI_WRITE);
    SO(!memcmp(near, far, SIZE));
    memset(far, 44, SIZE);
    GIVES(fi_read(a->ep, near, 5000, NULL, a->peer, (uintptr_t)far, fi_mr_key(mr), near), 0);
    SO(done(a->tx, near, NULL).flags & FI_READ);
    SO(!memcmp(near, far, 5000));

    /* With data the target reads of it, and no receive is taken. */
    fi_addr_t source = 7;
    memset(near, 55, 500);
    GIVES(fi_writedata(a->ep, near, 500, NULL, ~0ULL, a->peer, (uintptr_t)far, fi_mr_key(mr), near), 0);
    struct fi_cq_tagged_entry entry = done(b->rx, NULL, &source);
    GIVES(entry.flags, FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA);
    GIVES(entry.len, 500);
    GIVES(entry.data, 0xffffffff);
    GIVES(source, b->peer);
    SO(!memcmp(near, far, 500));
    SO(done(a->tx, near, NULL).flags & FI_WRITE);
    GIVES(fi_inject_writedata(a->ep, near, 8, 6, a->peer, (uintptr_t)far, fi_mr_key(mr)), 0);
    GIVES(done(b->rx, NULL, NULL).data, 6);
    size_t inject = info->tx_attr->inject_size;
    memset(near, 66, inject);
    GIVES(fi_inject_writedata(a->ep, near, inject, 7, a->peer, (uintptr_t)far, fi_mr_key(mr)), 0);
    memset(near, 0, inject);
    GIVES(done(b->rx, NULL, NULL).len, inject);
    SO(far[0] == 66 && far[inject - 1] == 66);
    GIVES(fi_inject_write(a->ep, near, inject + 1, a->peer, (uintptr_t)far, fi_mr_key(mr)), -FI_EMSGSIZE);

    GIVES(fi_fetch_atomicvalid(a->ep, FI_UINT64, FI_SUM, &count), 0);
    GIVES(count, 1);
    GIVES(fi_atomicvalid(a->ep, FI_LONG_DOUBLE, FI_SUM, &count), -FI_EOPNOTSUPP);
    GIVES(fi_query_atomic(domain, FI_INT8, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
    GIVES(attr.size, 1);
    GIVES(fi_query_atomic(domain, FI_INT8, FI_MSWAP, &attr, FI_COMPARE_ATOMIC), -FI_EOPNOTSUPP);
    uint64_t at = (uintptr_t)&word, key = fi_mr_key(words);
    GIVES(fi_fetch_atomic(a->ep, &one, 1, NULL, &old, NULL, a->peer, at, key, FI_UINT64, FI_SUM, NULL), 0);
    SO(done(a->tx, NULL, NULL).flags & FI_ATOMIC);
    GIVES(old, 5);
    GIVES(fi_compare_atomic(a->ep, &new_one, 1, NULL, &expected, NULL, &old, NULL, a->peer, at, key, FI_UINT64,
                            FI_CSWAP, NULL), 0);
    done(a->tx, NULL, NULL);
    GIVES(old, 6);
    GIVES(fi_fetch_atomic(a->ep, NULL, 1, NULL, &old, NULL, a->peer, at, key, FI_UINT64, FI_ATOMIC_READ, NULL), 0);
    done(a->tx, NULL, NULL);
    GIVES(old, 9);
    GIVES(fi_atomic(a->ep, &one, 2, NULL, a->peer, at, key, FI_UINT64, FI_SUM, NULL), -FI_EMSGSIZE);
    GIVES(fi_atomic(a->ep, &one, 0, NULL, a->peer, at, key, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
    GIVES(fi_atomic(a->ep, NULL, 1, NULL, a->peer, at, key, FI_UINT64, FI_ATOMIC_WRITE, NULL), -FI_EINVAL);
    GIVES(fi_compare_atomic(a->ep, &one, 1, NULL, NULL, NULL, &old, NULL, a->peer, at, key, FI_UINT64, FI_CSWAP, NULL),
          -FI_EINVAL);
    GIVES(fi_fetch_atomic(a->ep, &one, 1, NULL, NULL, NULL, a->peer, at, key, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
    GIVES(fi_close(&mr->fid), 0);
    GIVES(fi_close(&words->fid), 0);
}

/* What an endpoint has for all its operations holds where it means something. */
static void usual(struct end *a, struct end *b) {
    static uint64_t word, one = 1;
    uint64_t flags[] = {FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE};
    struct fid_mr *mr;
    NEEDS(fi_mr_reg(domain, &word, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
    uint64_t at = (uintptr_t)&word, key = fi_mr_key(mr);
    for (size_t which = 0; which < sizeof flags / sizeof *flags; which++) {
        uint64_t set = FI_TRANSMIT | flags[which], many = FI_RECV | FI_MULTI_RECV, none = FI_RECV;
        GIVES(fi_control(&a->ep->fid, FI_SETOPSFLAG, &set), 0);
        GIVES(fi_write(a->ep, near, 8, NULL, a->peer, at, key, near), 0);
        done(a->tx, near, NULL);
        GIVES(fi_read(a->ep, near, 8, NULL, a->peer, at, key, near), 0);
        done(a->tx, near, NULL);
        GIVES(fi_atomic(a->ep, &one, 1, NULL, a->peer, at, key, FI_UINT64, FI_SUM, near), 0);
        done(a->tx, near, NULL);
        GIVES(fi_control(&b->ep->fid, FI_SETOPSFLAG, &many), 0);
        GIVES(fi_trecv(b->ep, far, 8, NULL, FI_ADDR_UNSPEC, 5, 0, far), 0);
        GIVES(fi_control(&b->ep->fid, FI_SETOPSFLAG, &none), 0);
        GIVES(fi_tsend(a->ep, near, 8, NULL, a->peer, 5, near), 0);
        done(b->rx, far, NULL);
        done(a->tx, near, NULL);
    }
    uint64_t none = FI_TRANSMIT;
    GIVES(fi_control(&a->ep->fid, FI_SETOPSFLAG, &none), 0);
    GIVES(fi_close(&mr->fid), 0);
}

/* A fenced message, short or long, comes when what was read before it is there. */
static void fenced(struct end *a, struct end *b) {
    struct fid_mr *mr;
    NEEDS(fi_mr_reg(domain, far, SIZE, FI_REMOTE_READ, 0, 0, 0, &mr, NULL));
    for (int round = 0; round < 30; round++) {
        static char into[SIZE];
        struct iovec place = {into, round % 2 ? 8 : SIZE};
        struct fi_msg_tagged message = {.msg_iov = &place, .iov_count = 1, .addr = a->peer, .tag = 3, .context = into};
        memset(far, round, SIZE);
        GIVES(fi_trecv(b->ep, into, SIZE, NULL, FI_ADDR_UNSPEC, 3, 0, into), 0);
        GIVES(fi_read(a->ep, near, SIZE, NULL, a->peer, (uintptr_t)far, fi_mr_key(mr), near), 0);
        GIVES(fi_tsendmsg(a->ep, &message, FI_FENCE), 0);
        done(b->rx, into, NULL);
        far[SIZE - 1] = (char)-1;
        done(a->tx, near, NULL);
        done(a->tx, into, NULL);
        GIVES(near[SIZE - 1], round);
    }
    GIVES(fi_close(&mr->fid), 0);
}

/* An endpoint is a peer like any other to itself. */
static void one_sided_to_self(struct end *end) {
    struct end self = *end;
    GIVES(fi_av_insert(end->av, &end->name, 1, &self.peer, 0, NULL), 1);
    one_sided(&self, &self);
    GIVES(fi_av_remove(end->av, &self.peer, 1, 0), 0);
}

/* A region goes with the receives into it. */
static void canceled(struct end *b) {
    struct fid_mr *mr;
    NEEDS(fi_mr_reg(domain, far, SIZE, FI_RECV, 0, 0, 0, &mr, NULL));
    GIVES(fi_recv(b->ep, far, 8, fi_mr_desc(mr), FI_ADDR_UNSPEC, far), 0);
    /* One that is not all in the region is not of it. */
    GIVES(fi_recv(b->ep, far - 1, 8, fi_mr_desc(mr), FI_ADDR_UNSPEC, near), 0);
    GIVES(fi_close(&mr->fid), 0);
    GIVES(failed(b->rx), FI_ECANCELED);
    GIVES(fi_cancel(&b->ep->fid, near), 0);
    GIVES(failed(b->rx), FI_ECANCELED);
}

/* A port is kept where the address is any. */
static void at_any_address(void) {
    struct sockaddr_in place = {.sin_family = AF_INET};
    socklen_t len = sizeof place;
    int other = socket(AF_INET, SOCK_STREAM, 0), shared = 1;
    /* As long as it is held no other program gets it; a listener that shares it does. */
    NEEDS(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &shared, sizeof shared));
    NEEDS(bind(other, (struct sockaddr *)&place, sizeof place));
    NEEDS(getsockname(other, (struct sockaddr *)&place, &len));
    struct end end = open_end(&place);
    close(other);
    GIVES(end.name.sin_port, place.sin_port);
    SO(end.name.sin_addr.s_addr != INADDR_ANY);
    close_end(&end);
}

/* A peer whose message came before its address was inserted is forgotten with that, and known anew. */
static void forgotten(void) {
    struct end a = open_end(NULL), b = open_end(NULL);
    for (int round = 0; round < 2; round++) {
        fi_addr_t source = 7;
        GIVES(fi_av_insert(a.av, &b.name, 1, &a.peer, 0, NULL), 1);
        GIVES(fi_recv(b.ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
        GIVES(fi_send(a.ep, near, 8, NULL, a.peer, near), 0);
        done(a.tx, near, NULL);
        done(b.rx, far, &source);
        SO(source == FI_ADDR_NOTAVAIL);
        GIVES(fi_av_insert(b.av, &a.name, 1, &b.peer, 0, NULL), 1);
        GIVES(fi_av_remove(a.av, &a.peer, 1, 0), 0);
        /* It finds the peer lost. */
        for (int look = 0; look < 100; look++) {
            struct fi_cq_tagged_entry entry;
            GIVES(fi_cq_read(b.rx, &entry, 1), -FI_EAGAIN);
            usleep(1000);
        }
        GIVES(fi_av_remove(b.av, &b.peer, 1, 0), 0);
    }
    close_end(&a);
    close_end(&b);
}

int main(void) {
    granted();
    info = info_of(FI_EP_RDM);
    NEEDS(fi_fabric(info->fabric_attr, &fabric, NULL));
    NEEDS(fi_domain(fabric, info, &domain, NULL));
    struct end a = open_end(NULL), b = open_end(NULL);
    addresses(&a, &b);
    messages(&a, &b);
    copied(&a, &b);
    tagged(&a, &b);
    injected(&a, &b);
    many(&a, &b);
    one_sided(&a, &b);
    one_sided_to_self(&a);
    usual(&a, &b);
    fenced(&a, &b);
    canceled(&b);
    /* A receive that no message has met ends with its endpoint. */
    GIVES(fi_recv(b.ep, far, 8, NULL, FI_ADDR_UNSPEC, far), 0);
    close_end(&a);
    close_end(&b);
    at_any_address();
    forgotten();
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    return failures > 0;
}
