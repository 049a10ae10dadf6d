/* Peers in processes of their own, which send back what they get, and operations with them, each with what came of it. */
#include "fabric.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Memory of each process: a part for its own buffers, and one for peers' one-sided operations. */
#define OWN (2 << 20)
#define SIZE (OWN + (64 << 10))
#define LONGEST 40000
/* Messages that a peer takes at a time, each to a place of its own. */
#define SLOTS 50
#define OPERATIONS (1 << 20)
/* The longest that may pass from a kill until all that was outstanding has ended, in seconds. */
#define BOUND 20
/* What a post answers where the peer is gone. */
#define DOWN (kind == FI_EP_MSG ? -FI_ENOTCONN : -FI_ECONNRESET)
/* Tags: what is greater than that of any operation. */
#define ANY_TAG (1ULL << 40)
#define UNTAGGED (1ULL << 41)
/* Of a message that is not sent back. */
#define NO_ECHO (1ULL << 42)

enum { BUSY, WAITS };

/* What a peer says of itself: where it is, and its memory for others. */
struct hello {
    struct sockaddr_in name;
    uint64_t address, key;
};

/* What it has to know: the endpoint's type, where its peer is, and where it is to be itself. */
struct order {
    enum fi_ep_type kind;
    struct sockaddr_in peer, place;
};

struct peer {
    pid_t pid;
    int orders, hellos;
    struct hello hello;
    /* Of a datagram endpoint. */
    fi_addr_t number;
    /* Of a connection. */
    struct side side;
    int outstanding;
};

struct operation {
    const char *what;
    struct peer *peer;
    size_t len;
    int times, error;
};

static char memory[SIZE] __attribute__((aligned(64)));
static enum fi_ep_type kind;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_mr *mr;
/* Of the datagram endpoint, whose completions those of connections share. */
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_av *av;
static struct operation operations[OPERATIONS];
static unsigned posted;
static uint64_t state;

static uint64_t draw(uint64_t below) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return (state >> 33) % below;
}

static int one_in(uint64_t number) { return draw(number) == 0; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Objects. */

static void open_domain(enum fi_ep_type type) {
    uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    kind = type;
    info = info_of(type);
    NEEDS(fi_fabric(info->fabric_attr, &fabric, NULL));
    NEEDS(fi_domain(fabric, info, &domain, NULL));
    NEEDS(fi_mr_reg(domain, memory, SIZE, access, 0, 0, 0, &mr, NULL));
    NEEDS(fi_cq_open(domain, &attr, &cq, NULL));
}

static void open_datagram_endpoint(const struct sockaddr_in *place) {
    struct fi_av_attr attr = {0};
    NEEDS(fi_av_open(domain, &attr, &av, NULL));
    NEEDS(fi_endpoint(domain, info, &ep, NULL));
    if (place) NEEDS(fi_setname(&ep->fid, (void *)place, sizeof *place));
    NEEDS(fi_ep_bind(ep, &av->fid, 0));
    NEEDS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    NEEDS(fi_enable(ep));
}

static struct side open_connected(struct fi_info *of) {
    struct side side = {.cq = cq};
    NEEDS(fi_eq_open(fabric, NULL, &side.eq, NULL));
    NEEDS(fi_endpoint(domain, of, &side.ep, NULL));
    NEEDS(fi_ep_bind(side.ep, &side.eq->fid, 0));
    NEEDS(fi_ep_bind(side.ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    NEEDS(fi_enable(side.ep));
    return side;
}

static void close_side(struct peer *peer) {
    GIVES(fi_close(&peer->side.ep->fid), 0);
    GIVES(fi_close(&peer->side.eq->fid), 0);
}

static void close_all(void) {
    if (ep) GIVES(fi_close(&ep->fid), 0);
    if (av) GIVES(fi_close(&av->fid), 0);
    GIVES(fi_close(&cq->fid), 0);
    GIVES(fi_close(&mr->fid), 0);
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
}

/* The peers' processes. */

/* What a slot is for now, and where it is. */
#define SLOT(slot) (memory + (slot) * LONGEST)

static void take_slot(struct fid_ep *of, size_t slot) {
    void *desc = fi_mr_desc(mr), *at = SLOT(slot);
    if (kind == FI_EP_MSG) NEEDS(fi_recv(of, at, LONGEST, desc, 0, at));
    else NEEDS(fi_trecv(of, at, LONGEST, desc, FI_ADDR_UNSPEC, 0, ~0ULL, at));
}

/* Sends back what comes, until it is killed, or its peer is gone. */
static void echo(struct fid_ep *of, fi_addr_t to) {
    struct fi_cq_tagged_entry entry;
    for (;;) {
        ssize_t read = fi_cq_sread(cq, &entry, 1, NULL, -1);
        if (read == -FI_EAGAIN) continue;
        if (read != 1) _exit(1);
        size_t slot = (size_t)((char *)entry.op_context - memory) / LONGEST;
        if (entry.flags & FI_SEND || (kind == FI_EP_RDM && entry.tag & NO_ECHO)) {
            take_slot(of, slot);
            continue;
        }
        ssize_t result;
        do
            result = kind == FI_EP_MSG ? fi_send(of, SLOT(slot), entry.len, fi_mr_desc(mr), 0, SLOT(slot))
                                       : fi_tsend(of, SLOT(slot), entry.len, fi_mr_desc(mr), to, entry.tag, SLOT(slot));
        while (result == -FI_EAGAIN);
        if (result != 0) _exit(1);
    }
}

static void serve(int orders, int hellos) {
    struct order order;
    struct hello hello = {.address = (uint64_t)memory + OWN};
    size_t len = sizeof hello.name;
    if (read(orders, &order, sizeof order) != sizeof order) _exit(1);
    open_domain(order.kind);
    hello.key = fi_mr_key(mr);
    if (kind == FI_EP_RDM) {
        fi_addr_t to;
        open_datagram_endpoint(order.place.sin_port ? &order.place : NULL);
        GIVES(fi_av_insert(av, &order.peer, 1, &to, 0, NULL), 1);
        for (size_t slot = 0; slot < SLOTS; slot++) take_slot(ep, slot);
        NEEDS(fi_getname(&ep->fid, &hello.name, &len));
        if (write(hellos, &hello, sizeof hello) < 0) _exit(1);
        echo(ep, to);
    }
    struct fid_eq *eq;
    struct fid_pep *pep;
    NEEDS(fi_eq_open(fabric, NULL, &eq, NULL));
    NEEDS(fi_passive_ep(fabric, info, &pep, NULL));
    if (order.place.sin_port) NEEDS(fi_setname(&pep->fid, &order.place, sizeof order.place));
    NEEDS(fi_pep_bind(pep, &eq->fid, 0));
    NEEDS(fi_listen(pep));
    NEEDS(fi_getname(&pep->fid, &hello.name, &len));
    if (write(hellos, &hello, sizeof hello) < 0) _exit(1);
    struct side side = open_connected(next_event(eq, FI_CONNREQ));
    for (size_t slot = 0; slot < SLOTS; slot++) take_slot(side.ep, slot);
    NEEDS(fi_accept(side.ep, NULL, 0));
    echo(side.ep, 0);
}

/* A process that waits for its order. */
static struct peer start(void) {
    struct peer peer = {0};
    int orders[2], hellos[2];
    pid_t parent = getpid();
    NEEDS(pipe(orders) | pipe(hellos));
    peer.pid = fork();
    if (peer.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        serve(orders[0], hellos[1]);
    }
    close(orders[0]), close(hellos[1]);
    peer.orders = orders[1], peer.hellos = hellos[0];
    return peer;
}

static void send_order(struct peer *peer, const struct sockaddr_in *place) {
    struct order order = {.kind = kind, .place = *place};
    size_t len = sizeof order.peer;
    if (ep) NEEDS(fi_getname(&ep->fid, &order.peer, &len));
    SO(write(peer->orders, &order, sizeof order) == sizeof order);
    if (read(peer->hellos, &peer->hello, sizeof peer->hello) != sizeof peer->hello) exit(1);
}

static void meet(struct peer *peer, const struct sockaddr_in *place) {
    send_order(peer, place);
    GIVES(fi_av_insert(av, &peer->hello.name, 1, &peer->number, 0, NULL), 1);
}

static void connect_to(struct peer *peer, const struct sockaddr_in *place) {
    send_order(peer, place);
    peer->side = open_connected(info);
    NEEDS(fi_connect(peer->side.ep, &peer->hello.name, NULL, 0));
    next_event(peer->side.eq, FI_CONNECTED);
}

static void end_peer(struct peer *peer) {
    kill(peer->pid, SIGKILL);
    waitpid(peer->pid, NULL, 0);
    close(peer->orders), close(peer->hellos);
}

/* Operations. */

/* One completion, if there is one within so many milliseconds. */
static int take(int patience) {
    struct fi_cq_tagged_entry entry = {0};
    struct fi_cq_err_entry error = {0};
    ssize_t read = fi_cq_sread(cq, &entry, 1, NULL, patience);
    if (read == -FI_EAGAIN) return 0;
    if (read == -FI_EAVAIL) GIVES(fi_cq_readerr(cq, &error, 0), 1);
    else GIVES(read, 1);
    struct operation *one = read == 1 ? entry.op_context : error.op_context;
    SO(one >= operations && one < operations + posted);
    if (!one) return 1;
    GIVES(++one->times, 1);
    one->error = error.err;
    one->peer->outstanding--;
    return 1;
}

/* An operation is known before it can end. */
static struct operation *begin(const char *what, struct peer *peer, size_t len) {
    SO(posted < OPERATIONS);
    if (posted == OPERATIONS) exit(1);
    struct operation *one = &operations[posted++];
    *one = (struct operation){.what = what, .peer = peer, .len = len};
    peer->outstanding++;
    return one;
}

static int begun(struct operation *one, ssize_t result) {
    if (result == 0) return 0;
    one->peer->outstanding--;
    posted--;
    if (result != -FI_EAGAIN && result != DOWN) GIVES(result, 0);
    return (int)result;
}

static void *some_place(size_t len) { return memory + draw(OWN - len); }

/* Memory of a datagram endpoint's need not be registered. */
static void *some_desc(void) { return kind == FI_EP_RDM && one_in(2) ? NULL : fi_mr_desc(mr); }

static int receive(struct peer *peer, fi_addr_t source, uint64_t tag) {
    struct operation *one = begin("a receive", peer, LONGEST);
    void *at = some_place(LONGEST), *desc = some_desc();
    if (kind == FI_EP_MSG) return begun(one, fi_recv(peer->side.ep, at, LONGEST, desc, 0, one));
    if (tag == UNTAGGED) return begun(one, fi_recv(ep, at, LONGEST, desc, source, one));
    return begun(one, fi_trecv(ep, at, LONGEST, desc, source, tag, 0, one));
}

static int send_one(struct peer *peer, uint64_t tag) {
    static const size_t lens[] = {0, 8, 500, 5000, LONGEST};
    size_t len = lens[draw(5)];
    struct operation *one = begin("a send", peer, len);
    void *at = some_place(LONGEST), *desc = some_desc();
    if (kind == FI_EP_MSG) return begun(one, fi_send(peer->side.ep, at, len, desc, 0, one));
    return begun(one, fi_tsend(ep, at, len, desc, peer->number, tag, one));
}

static int one_sided(struct peer *peer) {
    uint64_t to = peer->hello.address, key = peer->hello.key;
    size_t len = one_in(2) ? 8 : LONGEST;
    struct fid_ep *of = kind == FI_EP_MSG ? peer->side.ep : ep;
    uint64_t which = draw(kind == FI_EP_MSG ? 2 : 3);
    static const char *const names[] = {"a write", "a read", "an atomic"};
    struct operation *one = begin(names[which], peer, len);
    void *at = some_place(LONGEST), *desc = some_desc();
    switch (which) {
    case 0: return begun(one, fi_write(of, at, len, desc, peer->number, to, key, one));
    case 1: return begun(one, fi_read(of, at, len, desc, peer->number, to, key, one));
    default:
        return begun(one, fi_fetch_atomic(of, memory, 1, NULL, memory + 64, NULL, peer->number, to, key, FI_UINT64, FI_SUM, one));
    }
}

/* What an operation, or a message and its answer, is refused by; 0 if all of it was posted. */
static int post(struct peer *peer) {
    if (kind == FI_EP_RDM && one_in(8)) {
        ssize_t result = fi_tinject(ep, memory, draw(100), peer->number, NO_ECHO);
        if (result != 0 && result != -FI_EAGAIN) GIVES(result, DOWN);
        return (int)result;
    }
    if (one_in(2)) return one_sided(peer);
    uint64_t tag = posted + 1;
    int result = receive(peer, peer->number, tag);
    return result ? result : send_one(peer, tag);
}

static void wait_for(const int *outstanding, int least) {
    double until = now() + 1e-3 * LONG;
    while (*outstanding > least && now() < until) take(10);
    GIVES(*outstanding > least, 0);
}

/* What has not ended. */
static void show(const struct peer *peer) {
    for (struct operation *one = operations; one < &operations[posted]; one++)
        if (one->peer == peer && !one->times) fprintf(stderr, "  %s of %zu bytes, the %zdth\n", one->what, one->len, one - operations);
}

/* All that is outstanding with a peer ends, and well. */
static void finish(struct peer *peer) {
    wait_for(&peer->outstanding, 0);
    for (unsigned at = 0; at < posted; at++)
        if (operations[at].peer == peer) GIVES(operations[at].error, 0);
}

/* A message of this tag goes. */
static void send_to(struct peer *peer, uint64_t tag) {
    int result;
    while ((result = send_one(peer, tag)) == -FI_EAGAIN) take(10);
    GIVES(result, 0);
}

/* So many messages go, and their answers come. */
static void exchange(struct peer *peer, int count) {
    int before = peer->outstanding;
    for (; count > 0; count--) {
        uint64_t tag = posted + 1;
        int result;
        while ((result = receive(peer, peer->number, tag)) == -FI_EAGAIN) take(10);
        GIVES(result, 0);
        send_to(peer, tag);
        wait_for(&peer->outstanding, before);
    }
}
