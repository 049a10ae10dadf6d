/* Calls every entry of the provider's tables with arguments that are odd and valid, before, during and after a connection. */
#include "fabric.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#define UNKNOWN (1ULL << 50)

static char memory[1 << 16];

/* A call that waits ends with a signal that is handled. */
static void handle(int signal) {
    (void)signal;
}

/* From now on one comes at these intervals. */
static void signal_every(int microseconds) {
    struct sigaction action = {.sa_handler = handle};
    struct itimerval every = {{.tv_usec = microseconds}, {.tv_usec = microseconds}};
    NEEDS(sigaction(SIGALRM, &action, NULL));
    NEEDS(setitimer(ITIMER_REAL, &every, NULL));
}

/* fi_getinfo, and objects that need no connection. */
static void of_the_provider(void) {
    struct fi_info *asked = hints(), *found = NULL;
    GIVES(fi_getinfo(FI_VERSION(99, 0), NULL, NULL, 0, asked, &found), -FI_ENOSYS);
    GIVES(fi_getinfo(FI_VERSION(1, 9), "no address", "1", FI_NUMERICHOST, asked, &found), -FI_ENODATA);
    GIVES(fi_getinfo(FI_VERSION(1, 9), NULL, "no such service", FI_SOURCE, asked, &found), -FI_ENODATA);
    asked->caps = FI_COLLECTIVE;
    GIVES(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, asked, &found), -FI_ENODATA);
    asked->caps = 0;
    asked->domain_attr->name = strdup("no such domain");
    GIVES(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, asked, &found), -FI_ENODATA);
    fi_freeinfo(asked);
    asked = hints();
    asked->tx_attr->iov_limit = SIZE_MAX;
    GIVES(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, asked, &found), -FI_ENODATA);
    asked->tx_attr->iov_limit = 0;
    size_t *limits[] = {&asked->domain_attr->cntr_cnt, &asked->domain_attr->mr_cnt, &asked->domain_attr->max_err_data};
    for (int at = 0; at < 3; at++) {
        *limits[at] = SIZE_MAX;
        GIVES(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, asked, &found), -FI_ENODATA);
        *limits[at] = at < 2;
    }
    NEEDS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, asked, &found));
    fi_freeinfo(found);
    fi_freeinfo(asked);
}

/* A program of a version before 1.5 knows neither the bits of modes of registration nor keys of authorization. */
static void of_old_programs(struct fi_info *info) {
    struct fi_info *all = NULL, *one;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_mr *mr;
    struct iovec part = {memory, 8};
    struct fi_mr_attr attr = {.mr_iov = &part, .iov_count = 1, .access = FI_SEND, .auth_key_size = 4};
    NEEDS(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, NULL, &all));
    for (one = all; one; one = one->next)
        if (!strcmp(one->fabric_attr->prov_name, PROVIDER)) GIVES(one->domain_attr->mr_mode, FI_MR_BASIC);
    fi_freeinfo(all);
    one = fi_dupinfo(info);
    one->fabric_attr->api_version = FI_VERSION(1, 4);
    NEEDS(fi_fabric(one->fabric_attr, &fabric, NULL));
    NEEDS(fi_domain(fabric, one, &domain, NULL));
    NEEDS(fi_mr_regattr(domain, &attr, 0, &mr));
    GIVES(fi_close(&mr->fid), 0);
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
    fi_freeinfo(one);
}

static void of_event_queues(struct fid_fabric *fabric) {
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_SET};
    struct fid_eq *eq = NULL;
    GIVES(fi_eq_open(fabric, &attr, &eq, NULL), -FI_ENOSYS);
    attr = (struct fi_eq_attr){.wait_obj = FI_WAIT_FD, .flags = UNKNOWN};
    GIVES(fi_eq_open(fabric, &attr, &eq, NULL), -FI_EINVAL);
    attr.flags = FI_WRITE;
    attr.size = 1;
    NEEDS(fi_eq_open(fabric, &attr, &eq, NULL));

    uint32_t event = 0;
    int fd = -1;
    struct fid *fids[] = {&eq->fid, &fabric->fid};
    GIVES(fi_eq_read(eq, &event, NULL, 0, 0), -FI_EAGAIN);
    GIVES(fi_eq_read(eq, NULL, memory, sizeof memory, FI_PEEK | UNKNOWN), -FI_EAGAIN);
    GIVES(fi_eq_sread(eq, &event, memory, sizeof memory, 0, 0), -FI_EAGAIN);
    GIVES(fi_eq_sread(eq, &event, memory, sizeof memory, 1, 0), -FI_EAGAIN);
    signal_every(20000);
    GIVES(fi_eq_sread(eq, &event, memory, sizeof memory, -1, 0), -FI_EAGAIN);
    signal_every(0);
    GIVES(fi_eq_readerr(eq, NULL, 0), -FI_EINVAL);
    struct fi_eq_err_entry error = {0};
    GIVES(fi_eq_readerr(eq, &error, FI_PEEK), -FI_EAGAIN);
    GIVES(fi_trywait(fabric, fids, 1), 0);
    GIVES(fi_trywait(fabric, fids, 2), -FI_EINVAL);
    GIVES(fi_trywait(fabric, fids, 0), 0);
    GIVES(fi_trywait(fabric, NULL, 0), -FI_EINVAL);
    GIVES(fi_control(&eq->fid, FI_GETWAIT, &fd), 0);
    SO(fd >= 0);
    GIVES(fi_control(&eq->fid, FI_GETWAIT, NULL), -FI_EINVAL);
    GIVES(fi_control(&eq->fid, 12345, &fd), -FI_ENOSYS);
    SO(fi_eq_strerror(eq, FI_EBUSY, NULL, NULL, 0) != NULL);
    SO(fi_eq_strerror(eq, -1, NULL, memory, 1) != NULL && memory[0] == 0);

    /* Events of no bytes and of many, more than there is room for, and read in parts. */
    GIVES(fi_eq_write(eq, 7, NULL, 0, 0), 0);
    GIVES(fi_eq_write(eq, 8, "x", 1, 0), -FI_EAGAIN);
    GIVES(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    GIVES(fi_eq_read(eq, &event, NULL, 0, 0), 0);
    GIVES(event, 7);
    GIVES(fi_eq_write(eq, 9, memory, sizeof memory, UNKNOWN), sizeof memory);
    GIVES(fi_eq_read(eq, &event, memory, 1, 0), -FI_ETOOSMALL);
    GIVES(fi_eq_read(eq, &event, memory, sizeof memory, FI_PEEK), sizeof memory);
    GIVES(fi_eq_sread(eq, &event, memory, sizeof memory, -1, 0), sizeof memory);
    GIVES(fi_eq_write(eq, 9, NULL, 1, 0), -FI_EINVAL);
    GIVES(fi_eq_write(eq, 9, memory, SIZE_MAX, 0), -FI_EINVAL);

    struct fid_wait *set = NULL;
    GIVES(fi_wait_open(fabric, NULL, &set), -FI_ENOSYS);
    GIVES(fi_close(&fabric->fid), -FI_EBUSY);
    GIVES(fi_close(&eq->fid), 0);
}

static void of_completion_queues(struct fid_fabric *fabric, struct fid_domain *domain) {
    struct fid_cq *cq = NULL;
    struct fi_cq_attr attr = {.format = 77};
    GIVES(fi_cq_open(domain, &attr, &cq, NULL), -FI_ENOSYS);
    attr = (struct fi_cq_attr){.wait_obj = FI_WAIT_MUTEX_COND};
    GIVES(fi_cq_open(domain, &attr, &cq, NULL), -FI_ENOSYS);
    attr = (struct fi_cq_attr){.flags = UNKNOWN};
    GIVES(fi_cq_open(domain, &attr, &cq, NULL), -FI_EINVAL);
    attr = (struct fi_cq_attr){.size = SIZE_MAX};
    NEEDS(fi_cq_open(domain, &attr, &cq, NULL));
    struct fi_cq_err_entry error = {0};
    fi_addr_t source;
    int fd;
    GIVES(fi_cq_read(cq, NULL, 0), -FI_EAGAIN);
    GIVES(fi_cq_read(cq, memory, 1), -FI_EAGAIN);
    GIVES(fi_cq_readfrom(cq, memory, 1, &source), -FI_EAGAIN);
    GIVES(fi_cq_readfrom(cq, memory, 1, NULL), -FI_EAGAIN);
    GIVES(fi_cq_readerr(cq, NULL, 0), -FI_EINVAL);
    GIVES(fi_cq_readerr(cq, &error, UNKNOWN), -FI_EAGAIN);
    GIVES(fi_cq_sread(cq, memory, 1, NULL, 0), -FI_ENOSYS);
    GIVES(fi_cq_sreadfrom(cq, memory, 1, &source, NULL, 0), -FI_ENOSYS);
    GIVES(fi_control(&cq->fid, FI_GETWAIT, &fd), -FI_ENODATA);
    GIVES(fi_cq_signal(cq), 0);
    SO(fi_cq_strerror(cq, FI_ETRUNC, NULL, NULL, 0) != NULL);
    GIVES(fi_close(&domain->fid), -FI_EBUSY);
    GIVES(fi_close(&cq->fid), 0);

    attr = (struct fi_cq_attr){.size = 1, .wait_obj = FI_WAIT_FD};
    NEEDS(fi_cq_open(domain, &attr, &cq, NULL));
    GIVES(fi_cq_sread(cq, memory, 1, NULL, 0), -FI_EAGAIN);
    GIVES(fi_cq_sread(cq, memory, 1, NULL, 1), -FI_EAGAIN);
    GIVES(fi_cq_signal(cq), 0);
    GIVES(fi_cq_sread(cq, memory, 1, NULL, -1), -FI_EAGAIN);
    GIVES(fi_cq_sread(cq, NULL, 0, NULL, 1), -FI_EAGAIN);
    /* A program that sleeps on the descriptor hears of a signal once. */
    struct fid *fids[] = {&cq->fid};
    GIVES(fi_cq_signal(cq), 0);
    GIVES(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
    GIVES(fi_trywait(fabric, fids, 1), 0);
    signal_every(20000);
    GIVES(fi_cq_sread(cq, memory, 1, NULL, -1), -FI_EAGAIN);
    signal_every(0);
    GIVES(fi_close(&cq->fid), 0);
}

static void of_counters(struct fid_domain *domain) {
    struct fid_cntr *cntr = NULL;
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_FD};
    GIVES(fi_cntr_open(domain, &attr, &cntr, NULL), -FI_ENOSYS);
    attr = (struct fi_cntr_attr){.events = FI_CNTR_EVENTS_COMP, .flags = UNKNOWN};
    GIVES(fi_cntr_open(domain, &attr, &cntr, NULL), -FI_EINVAL);
    NEEDS(fi_cntr_open(domain, NULL, &cntr, NULL));
    GIVES(fi_cntr_read(cntr), 0);
    GIVES(fi_cntr_set(cntr, UINT64_MAX), 0);
    GIVES(fi_cntr_add(cntr, 2), 0);
    GIVES(fi_cntr_read(cntr), 1);
    GIVES(fi_cntr_seterr(cntr, 3), 0);
    GIVES(fi_cntr_adderr(cntr, 4), 0);
    GIVES(fi_cntr_readerr(cntr), 7);
    GIVES(fi_cntr_wait(cntr, 1, -1), 0);
    GIVES(fi_cntr_wait(cntr, 2, 0), -FI_ETIMEDOUT);
    GIVES(fi_cntr_wait(cntr, 2, 3), -FI_ETIMEDOUT);
    GIVES(fi_control(&cntr->fid, FI_GETWAIT, NULL), -FI_ENOSYS);
    GIVES(fi_close(&cntr->fid), 0);
}

static void of_regions(struct fid_domain *domain) {
    struct fid_mr *mr = NULL;
    struct iovec parts[] = {{memory, 8}, {memory + 8, 8}};
    GIVES(fi_mr_reg(domain, memory, 0, FI_SEND, 0, 0, 0, &mr, NULL), -FI_EINVAL);
    GIVES(fi_mr_reg(domain, NULL, 8, FI_SEND, 0, 0, 0, &mr, NULL), -FI_EINVAL);
    GIVES(fi_mr_reg(domain, memory, SIZE_MAX, FI_SEND, 0, 0, 0, &mr, NULL), -FI_EINVAL);
    GIVES(fi_mr_reg(domain, memory, 8, UNKNOWN, 0, 0, 0, &mr, NULL), -FI_EINVAL);
    GIVES(fi_mr_reg(domain, memory, 8, FI_SEND, 0, 0, UNKNOWN, &mr, NULL), -FI_EBADFLAGS);
    GIVES(fi_mr_reg(domain, memory, 8, FI_SEND, 0, 0, 0, NULL, NULL), -FI_EINVAL);
    GIVES(fi_mr_regv(domain, parts, 0, FI_SEND, 0, 0, 0, &mr, NULL), -FI_EINVAL);
    GIVES(fi_mr_regv(domain, parts, 2, FI_SEND, 0, 0, 0, &mr, NULL), -FI_EINVAL);
    GIVES(fi_mr_regv(domain, NULL, 1, FI_SEND, 0, 0, 0, &mr, NULL), -FI_EINVAL);
    GIVES(fi_mr_regattr(domain, NULL, 0, &mr), -FI_EINVAL);
    struct fi_mr_attr attr = {.mr_iov = parts, .iov_count = 1, .access = FI_SEND, .auth_key_size = 4};
    GIVES(fi_mr_regattr(domain, &attr, 0, &mr), -FI_EINVAL);
    attr.auth_key_size = 0;
    /* What kind of memory it is counts with FI_HMEM only. */
    attr.iface = FI_HMEM_CUDA;
    NEEDS(fi_mr_regattr(domain, &attr, 0, &mr));
    GIVES(fi_mr_bind(mr, &domain->fid, 0), -FI_ENOSYS);
    GIVES(fi_mr_enable(mr), -FI_ENOSYS);
    GIVES(fi_close(&domain->fid), -FI_EBUSY);
    GIVES(fi_close(&mr->fid), 0);
    /* No rights at all are rights. */
    NEEDS(fi_mr_reg(domain, memory, 1, 0, UINT64_MAX, UINT64_MAX, 0, &mr, NULL));
    GIVES(fi_close(&mr->fid), 0);
}

/* What is not there says so. */
static void of_refusals(struct fid_fabric *fabric, struct fid_domain *domain, struct fi_info *info) {
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_poll *poll;
    struct fi_av_attr av_attr = {0};
    struct fi_poll_attr poll_attr = {0};
    size_t count;
    GIVES(fi_scalable_ep(domain, info, &ep, NULL), -FI_ENOSYS);
    GIVES(fi_poll_open(domain, &poll_attr, &poll), -FI_ENOSYS);
    GIVES(fi_domain_bind(domain, &fabric->fid, 0), -FI_ENOSYS);
    GIVES(fi_control(&domain->fid, 1, NULL), -FI_ENOSYS);
    GIVES(fi_control(&fabric->fid, 1, NULL), -FI_ENOSYS);

    NEEDS(fi_endpoint(domain, info, &ep, NULL));
    /* Connections have no addresses to look up. */
    NEEDS(fi_av_open(domain, &av_attr, &av, NULL));
    GIVES(fi_ep_bind(ep, &av->fid, 0), -FI_EINVAL);
    GIVES(fi_close(&av->fid), 0);
    struct fi_msg_tagged tagged = {0};
    struct fi_msg_atomic atomics = {0};
    GIVES(fi_tsend(ep, NULL, 0, NULL, 0, 1, NULL), -FI_ENOSYS);
    GIVES(fi_tsendv(ep, NULL, NULL, 0, 0, 1, NULL), -FI_ENOSYS);
    GIVES(fi_tsendmsg(ep, &tagged, 0), -FI_ENOSYS);
    GIVES(fi_tinject(ep, NULL, 0, 0, 1), -FI_ENOSYS);
    GIVES(fi_tsenddata(ep, NULL, 0, NULL, 0, 0, 1, NULL), -FI_ENOSYS);
    GIVES(fi_tinjectdata(ep, NULL, 0, 0, 0, 1), -FI_ENOSYS);
    GIVES(fi_trecv(ep, NULL, 0, NULL, 0, 1, 0, NULL), -FI_ENOSYS);
    GIVES(fi_trecvv(ep, NULL, NULL, 0, 0, 1, 0, NULL), -FI_ENOSYS);
    GIVES(fi_trecvmsg(ep, &tagged, 0), -FI_ENOSYS);
    GIVES(fi_atomic(ep, NULL, 0, NULL, 0, 0, 0, FI_UINT64, FI_SUM, NULL), -FI_ENOSYS);
    GIVES(fi_atomicmsg(ep, &atomics, 0), -FI_ENOSYS);
    GIVES(fi_fetch_atomic(ep, NULL, 0, NULL, NULL, NULL, 0, 0, 0, FI_UINT64, FI_SUM, NULL), -FI_ENOSYS);
    GIVES(fi_inject_atomic(ep, NULL, 0, 0, 0, 0, FI_UINT64, FI_SUM), -FI_ENOSYS);
    GIVES(fi_compare_atomic(ep, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, FI_UINT64, FI_CSWAP, NULL), -FI_ENOSYS);
    GIVES(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count), -FI_ENOSYS);
    GIVES(fi_fetch_atomicvalid(ep, FI_UINT64, FI_SUM, &count), -FI_ENOSYS);
    GIVES(fi_compare_atomicvalid(ep, FI_UINT64, FI_CSWAP, &count), -FI_ENOSYS);
    GIVES(fi_cancel(&ep->fid, NULL), -FI_ENOSYS);
    GIVES(fi_close(&ep->fid), 0);
}

/* More operations than are counted: of either side, or of both together. */
static void depths(struct fid_fabric *fabric, struct fid_domain *domain, struct fi_info *info) {
    static const size_t sizes[][2] = {{SIZE_MAX, 0}, {0, SIZE_MAX}, {SIZE_MAX, SIZE_MAX}, {SIZE_MAX, 2}};
    size_t tx = info->tx_attr->size, rx = info->rx_attr->size;
    struct fid_ep *ep;
    struct fid_eq *eq;
    struct fid_cq *cq;
    NEEDS(fi_eq_open(fabric, NULL, &eq, NULL));
    NEEDS(fi_cq_open(domain, NULL, &cq, NULL));
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        info->tx_attr->size = sizes[at][0], info->rx_attr->size = sizes[at][1];
        NEEDS(fi_endpoint(domain, info, &ep, NULL));
        NEEDS(fi_ep_bind(ep, &eq->fid, 0));
        NEEDS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
        GIVES(fi_enable(ep), -FI_EINVAL);
        NEEDS(fi_close(&ep->fid));
    }
    info->tx_attr->size = tx, info->rx_attr->size = rx;
    NEEDS(fi_close(&cq->fid));
    NEEDS(fi_close(&eq->fid));
}

/* An endpoint that is not enabled, or not connected. */
static void of_endpoints(struct fid_fabric *fabric, struct fid_domain *domain, struct fi_info *info) {
    struct fid_ep *ep = NULL;
    struct fid_eq *eq;
    struct fid_cq *cq;
    GIVES(fi_endpoint(domain, NULL, &ep, NULL), -FI_EINVAL);
    info->handle = &fabric->fid;
    GIVES(fi_endpoint(domain, info, &ep, NULL), -FI_EINVAL);
    /* The handle of what is gone, whose place is not there any more. */
    info->handle = (struct fid *)64;
    GIVES(fi_endpoint(domain, info, &ep, NULL), -FI_EINVAL);
    info->handle = NULL;
    NEEDS(fi_endpoint(domain, info, &ep, NULL));
    NEEDS(fi_eq_open(fabric, NULL, &eq, NULL));
    NEEDS(fi_cq_open(domain, NULL, &cq, NULL));

    size_t size = 0, len = 0;
    uint64_t flags = FI_TRANSMIT | FI_RECV;
    GIVES(fi_enable(ep), -FI_ENOEQ);
    GIVES(fi_send(ep, memory, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
    GIVES(fi_recv(ep, memory, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
    GIVES(fi_inject(ep, NULL, 0, 0), -FI_EOPBADSTATE);
    /* Both would enable it. */
    GIVES(fi_connect(ep, info->src_addr, NULL, 0), -FI_ENOEQ);
    GIVES(fi_accept(ep, NULL, 0), -FI_ENOEQ);
    GIVES(fi_shutdown(ep, 0), -FI_EOPBADSTATE);
    GIVES(fi_ep_bind(ep, &domain->fid, 0), -FI_EINVAL);
    GIVES(fi_ep_bind(ep, &cq->fid, 0), -FI_EINVAL);
    GIVES(fi_ep_bind(ep, &cq->fid, FI_RECV | UNKNOWN), -FI_EINVAL);
    NEEDS(fi_ep_bind(ep, &eq->fid, 0));
    GIVES(fi_enable(ep), -FI_ENOCQ);
    NEEDS(fi_ep_bind(ep, &cq->fid, FI_RECV));
    GIVES(fi_ep_bind(ep, &cq->fid, FI_RECV), -FI_EINVAL);
    GIVES(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
    GIVES(fi_enable(ep), -FI_ENOCQ);
    NEEDS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT));
    NEEDS(fi_enable(ep));
    GIVES(fi_enable(ep), -FI_EOPBADSTATE);
    GIVES(fi_ep_bind(ep, &eq->fid, 0), -FI_EOPBADSTATE);
    GIVES(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &size, &len), -FI_ETOOSMALL);
    len = sizeof size;
    GIVES(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &size, &len), 0);
    GIVES(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, NULL, &len), -FI_EINVAL);
    GIVES(fi_getopt(&ep->fid, 99, 99, &size, &len), -FI_ENOPROTOOPT);
    GIVES(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, sizeof size), -FI_ENOPROTOOPT);
    GIVES(fi_control(&ep->fid, FI_GETOPSFLAG, &flags), -FI_EINVAL);
    GIVES(fi_control(&ep->fid, FI_GETOPSFLAG, NULL), -FI_EINVAL);
    GIVES(fi_control(&ep->fid, 12345, NULL), -FI_ENOSYS);

    GIVES(fi_send(ep, NULL, 0, NULL, 0, NULL), -FI_ENOTCONN);
    GIVES(fi_getpeer(ep, memory, &len), -FI_ENOTCONN);
    GIVES(fi_accept(ep, NULL, 0), -FI_EOPBADSTATE);
    GIVES(fi_connect(ep, memory, NULL, 0), -FI_EINVAL);
    GIVES(fi_connect(ep, NULL, NULL, 0), -FI_EINVAL);
    GIVES(fi_shutdown(ep, UNKNOWN), -FI_EINVAL);
    GIVES(fi_setname(&ep->fid, memory, 0), -FI_EINVAL);
    GIVES(fi_setname(&ep->fid, info->src_addr, info->src_addrlen), -FI_ENOSYS);
    len = 0;
    GIVES(fi_getname(&ep->fid, NULL, &len), -FI_ETOOSMALL);
    GIVES(fi_getname(&ep->fid, NULL, NULL), -FI_EINVAL);
    /* Receives may wait for the connection, and end with the endpoint: nothing is read of them. */
    GIVES(fi_recv(ep, NULL, 0, NULL, 0, NULL), 0);
    GIVES(fi_close(&cq->fid), -FI_EBUSY);
    GIVES(fi_close(&eq->fid), -FI_EBUSY);
    GIVES(fi_close(&ep->fid), 0);
    GIVES(fi_cq_read(cq, memory, 1), -FI_EAGAIN);
    GIVES(fi_close(&cq->fid), 0);
    GIVES(fi_close(&eq->fid), 0);
}

/* A side that an endpoint does not have needs no queue, and no operation goes to two counters. */
static void of_one_side(struct fid_fabric *fabric, struct fid_domain *domain) {
    uint64_t caps[] = {FI_MSG | FI_SEND | FI_FENCE, FI_MSG | FI_RECV, FI_RMA | FI_READ | FI_WRITE};
    for (int at = 0; at < 3; at++) {
        struct fi_info *info = info_with(FI_EP_MSG, caps[at]);
        struct fid_ep *ep;
        struct fid_eq *eq;
        struct fid_cq *cq;
        struct fid_cntr *counters[2];
        NEEDS(fi_eq_open(fabric, NULL, &eq, NULL));
        NEEDS(fi_cq_open(domain, NULL, &cq, NULL));
        NEEDS(fi_endpoint(domain, info, &ep, NULL));
        NEEDS(fi_ep_bind(ep, &eq->fid, 0));
        for (int one = 0; one < 2; one++) {
            NEEDS(fi_cntr_open(domain, NULL, &counters[one], NULL));
            GIVES(fi_ep_bind(ep, &counters[one]->fid, FI_REMOTE_READ), -FI_ENOSYS);
            GIVES(fi_ep_bind(ep, &counters[one]->fid, 0), -FI_EINVAL);
        }
        GIVES(fi_enable(ep), -FI_ENOCQ);
        NEEDS(fi_ep_bind(ep, &cq->fid, at == 1 ? FI_RECV : FI_TRANSMIT));
        NEEDS(fi_ep_bind(ep, &counters[0]->fid, FI_WRITE | FI_RECV));
        GIVES(fi_ep_bind(ep, &counters[1]->fid, FI_READ | FI_WRITE), -FI_EINVAL);
        NEEDS(fi_ep_bind(ep, &counters[1]->fid, FI_READ));
        NEEDS(fi_enable(ep));
        struct fid *all[] = {&ep->fid, &cq->fid, &eq->fid, &counters[0]->fid, &counters[1]->fid};
        for (int one = 0; one < 5; one++) GIVES(fi_close(all[one]), 0);
        fi_freeinfo(info);
    }
}

static void of_passive_endpoints(struct fid_fabric *fabric, struct fi_info *info) {
    struct fid_pep *pep = NULL;
    struct fid_eq *eq;
    int backlog = -1;
    size_t len = 0;
    GIVES(fi_passive_ep(fabric, NULL, &pep, NULL), -FI_EINVAL);
    NEEDS(fi_passive_ep(fabric, info, &pep, NULL));
    NEEDS(fi_eq_open(fabric, NULL, &eq, NULL));
    GIVES(fi_listen(pep), -FI_ENOEQ);
    GIVES(fi_control(&pep->fid, FI_BACKLOG, &backlog), -FI_EINVAL);
    backlog = 0x7fffffff;
    GIVES(fi_control(&pep->fid, FI_BACKLOG, &backlog), 0);
    GIVES(fi_control(&pep->fid, 12345, &backlog), -FI_ENOSYS);
    GIVES(fi_setname(&pep->fid, memory, 1), -FI_EINVAL);
    GIVES(fi_pep_bind(pep, &eq->fid, UNKNOWN), -FI_EINVAL);
    GIVES(fi_pep_bind(pep, &pep->fid, 0), -FI_EINVAL);
    NEEDS(fi_pep_bind(pep, &eq->fid, 0));
    GIVES(fi_getname(&pep->fid, NULL, &len), -FI_ETOOSMALL);
    NEEDS(fi_listen(pep));
    GIVES(fi_listen(pep), -FI_EOPBADSTATE);
    GIVES(fi_control(&pep->fid, FI_BACKLOG, &backlog), -FI_EOPBADSTATE);
    GIVES(fi_reject(pep, &fabric->fid, NULL, 0), -FI_EINVAL);
    GIVES(fi_reject(pep, NULL, NULL, 0), -FI_EINVAL);
    GIVES(fi_close(&eq->fid), -FI_EBUSY);
    GIVES(fi_close(&pep->fid), 0);
    GIVES(fi_close(&eq->fid), 0);
}

int main(int count, char **arguments) {
    struct fi_info *asked = hints(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    (void)count, (void)arguments;
    of_the_provider();
    NEEDS(fi_getinfo(FI_VERSION(1, 9), host(), NULL, FI_SOURCE, asked, &info));
    GIVES(fi_fabric(info->fabric_attr, NULL, NULL), -FI_EINVAL);
    NEEDS(fi_fabric(info->fabric_attr, &fabric, NULL));
    GIVES(fi_domain(fabric, NULL, &domain, NULL), -FI_EINVAL);
    NEEDS(fi_domain(fabric, info, &domain, NULL));
    of_old_programs(info);
    of_event_queues(fabric);
    of_completion_queues(fabric, domain);
    of_counters(domain);
    of_regions(domain);
    of_refusals(fabric, domain, info);
    of_endpoints(fabric, domain, info);
    depths(fabric, domain, info);
    of_one_side(fabric, domain);
    of_passive_endpoints(fabric, info);
    GIVES(fi_close(&fabric->fid), -FI_EBUSY);
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    fi_freeinfo(asked);
    printf("%d unexpected\n", failures);
    return failures != 0;
}
