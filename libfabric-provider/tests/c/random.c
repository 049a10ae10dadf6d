/* Random programs: calls in any order, on any of the objects that there are, with arguments that are odd and valid. No call panics
 * (FI_EOTHER) or takes for ever, no completion comes that no one is to hear of, and in the end everything closes.
 *
 *     random [SEED [STEPS]]
 *
 * prints the seed and the last calls if something is wrong. What threads and connections do meanwhile differs from run to run. */
#include "random.h"

/* The calls. */

static void of_discovery(void) {
    struct fi_info *asked = one_in(8) ? NULL : hints(), *found = NULL;
    const char *nodes[] = {NULL, host(), "::1", "localhost", "", "no such node", "0.0.0.0"};
    static const char *services[] = {NULL, "0", "65535", "65536", "-1", ""};
    if (asked) {
        uint64_t *fields[] = {&asked->caps, &asked->mode, &asked->tx_attr->caps, &asked->tx_attr->mode,
            &asked->tx_attr->op_flags, &asked->tx_attr->msg_order, &asked->rx_attr->caps, &asked->rx_attr->op_flags,
            &asked->domain_attr->caps, &asked->rx_attr->comp_order};
        size_t *sizes[] = {&asked->tx_attr->size, &asked->tx_attr->inject_size, &asked->tx_attr->iov_limit,
            &asked->rx_attr->size, &asked->rx_attr->iov_limit, &asked->ep_attr->max_msg_size,
            &asked->domain_attr->cq_data_size, &asked->ep_attr->tx_ctx_cnt, &asked->ep_attr->rx_ctx_cnt};
        asked->ep_attr->type = (enum fi_ep_type)draw(5);
        if (one_in(2)) *fields[draw(sizeof fields / sizeof *fields)] = one_in(2) ? some_flags() : some_number();
        if (one_in(2)) *sizes[draw(sizeof sizes / sizeof *sizes)] = some_number();
        if (one_in(4)) asked->domain_attr->mr_mode = (int)some_number();
        if (one_in(4)) asked->addr_format = (uint32_t)draw(8);
        if (one_in(4)) asked->domain_attr->av_type = (enum fi_av_type)draw(4);
    }
    const char *node = nodes[draw(7)], *service = services[draw(6)];
    uint64_t flags = one_in(2) ? FI_SOURCE : one_in(2) ? FI_NUMERICHOST : 0;
    if (CALL(fi_getinfo(FI_VERSION(1, (uint32_t)draw(18)), node, service, flags | FI_NUMERICHOST, asked, &found)) == 0)
        fi_freeinfo(found);
    if (asked) fi_freeinfo(asked);
}

static void open_queue(void) {
    struct object *place = free_place(CQ);
    if (!place) return;
    struct fi_cq_attr attr = {.size = one_in(2) ? draw(64) : some_number(), .format = (enum fi_cq_format)draw(6),
        .wait_obj = one_in(2) ? FI_WAIT_FD : (enum fi_wait_obj)draw(7), .flags = one_in(8) ? some_flags() : 0};
    struct fid_cq *cq = NULL;
    int kind = (int)draw(2);
    if (one_in(2)) attr = (struct fi_cq_attr){.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    if (CALL(fi_cq_open(domains[kind], &attr, &cq, NULL)) == 0)
        *place = (struct object){.fid = &cq->fid, .is_datagram = kind, .cq = attr};
}

static void open_small(void) {
    struct fi_eq_attr eq_attr = {.size = some_number(), .flags = one_in(2) ? FI_WRITE : some_flags(),
        .wait_obj = one_in(2) ? FI_WAIT_FD : (enum fi_wait_obj)draw(7)};
    struct fi_cntr_attr cntr_attr = {.events = (enum fi_cntr_events)draw(3), .wait_obj = (enum fi_wait_obj)draw(7)};
    struct fi_av_attr av_attr = {.type = (enum fi_av_type)draw(4), .count = some_number(),
        .flags = one_in(4) ? some_flags() : 0, .rx_ctx_bits = one_in(8) ? 3 : 0};
    struct fid_eq *eq = NULL;
    struct fid_cntr *cntr = NULL;
    struct fid_av *av = NULL;
    if (one_in(2)) eq_attr = (struct fi_eq_attr){.wait_obj = FI_WAIT_FD}, av_attr = (struct fi_av_attr){0};
    int kind = (int)draw(2);
    struct object *place = free_place((int)draw(3) == 0 ? EQ : one_in(2) ? CNTR : AV), made = {.is_datagram = kind};
    if (!place) return;
    int class = (int)((place - objects[0]) / MANY);
    if (class == EQ && CALL(fi_eq_open(fabric, one_in(4) ? NULL : &eq_attr, &eq, NULL)) == 0) made.fid = &eq->fid;
    if (class == CNTR && CALL(fi_cntr_open(domains[kind], one_in(2) ? NULL : &cntr_attr, &cntr, NULL)) == 0)
        made.fid = &cntr->fid;
    if (class == AV && CALL(fi_av_open(domains[kind], &av_attr, &av, NULL)) == 0) made.fid = &av->fid;
    *place = made;
}

static void open_region(void) {
    struct object *place = free_place(MR);
    if (!place) return;
    static const uint64_t rights[] = {FI_SEND | FI_RECV, FI_READ | FI_WRITE, FI_REMOTE_READ | FI_REMOTE_WRITE};
    uint64_t access = one_in(8) ? some_flags() : rights[draw(3)] | rights[draw(3)];
    size_t len = some_len();
    struct fid_mr *mr = NULL;
    int kind = (int)draw(2);
    if (CALL(fi_mr_reg(domains[kind], some_memory(len), len, access, 0, some_number(), 0, &mr, NULL)) == 0)
        *place = (struct object){.fid = &mr->fid, .is_datagram = kind};
}

/* Where an endpoint is, to be connected to and inserted. */
static void name(struct object *one) {
    struct sockaddr_in place = {0};
    int is_passive = one->fid->fclass == FI_CLASS_PEP;
    size_t len = one_in(8) ? draw(sizeof place) : sizeof place;
    if (CALL(fi_getname(one->fid, &place, &len)) == 0 && (is_passive || one->is_datagram))
        places[one->is_datagram][draw(4)] = place;
    if (one_in(8)) place.sin_port = 0;
    if (one_in(8))
        CALL(fi_setname(one->fid, one_in(2) ? some_place(0) : &place, one_in(4) ? draw(sizeof place) : sizeof place));
    len = sizeof place;
    if (!is_passive && one_in(8)) CALL(fi_getpeer((struct fid_ep *)one->fid, &place, &len));
}

static void name_some(void) {
    struct object *one = some(one_in(2) ? EP : PEP);
    if (one) name(one);
}

/* Binds what an endpoint needs, mostly, and enables it. */
static void equip(struct object *one) {
    struct fid_ep *ep = (struct fid_ep *)one->fid;
    struct object *cq = some_of(CQ, one->is_datagram), *rx = some_of(CQ, one->is_datagram);
    struct object *eq = some(EQ), *av = some_of(AV, one->is_datagram), *cntr = some_of(CNTR, one->is_datagram);
    if (eq) CALL(fi_ep_bind(ep, eq->fid, 0));
    if (cq) CALL(fi_ep_bind(ep, cq->fid, FI_TRANSMIT | (one_in(2) ? FI_RECV : 0) | (one_in(8) ? some_flags() : 0)));
    if (rx) CALL(fi_ep_bind(ep, rx->fid, FI_RECV));
    if (av && one->is_datagram) CALL(fi_ep_bind(ep, av->fid, 0));
    if (cntr && one_in(4)) CALL(fi_ep_bind(ep, cntr->fid, FI_SEND | FI_RECV));
    if (one_in(8)) CALL(fi_ep_bind(ep, some_fid(), some_flags()));
    if (CALL(fi_enable(ep)) == 0) name(one);
}

static struct object *open_endpoint_of(struct fi_info *info, int kind) {
    struct object *place = free_place(EP);
    struct fid_ep *ep = NULL;
    if (!place) return NULL;
    if (one_in(4)) info->tx_attr->size = one_in(4) ? some_number() : 1 + draw(64);
    if (one_in(4)) info->rx_attr->size = one_in(4) ? some_number() : 1 + draw(64);
    if (one_in(4)) info->tx_attr->op_flags = some_flags();
    if (one_in(4)) info->rx_attr->op_flags = some_flags();
    if (one_in(8)) info->tx_attr->inject_size = some_number();
    if (one_in(8)) info->tx_attr->iov_limit = some_number();
    if (CALL(fi_endpoint(domains[kind], info, &ep, NULL)) != 0) return NULL;
    *place = (struct object){.fid = &ep->fid, .is_datagram = kind, .takes_many = kind, .number = ++numbers};
    equip(place);
    return place;
}

static void open_endpoint(void) {
    int kind = (int)draw(2);
    struct fi_info *info = fi_dupinfo(infos[kind]);
    open_endpoint_of(info, kind);
    fi_freeinfo(info);
}

static void open_passive(void) {
    struct object *place = free_place(PEP), *eq = some(EQ);
    struct fid_pep *pep = NULL;
    if (!place || CALL(fi_passive_ep(fabric, infos[one_in(8)], &pep, NULL)) != 0) return;
    *place = (struct object){.fid = &pep->fid};
    if (eq) CALL(fi_pep_bind(pep, eq->fid, one_in(8) ? some_flags() : 0));
    if (one_in(8)) CALL(fi_pep_bind(pep, some_fid(), 0));
    if (CALL(fi_listen(pep)) == 0) name(place);
}

static void equip_some(void) {
    struct object *ep = some(EP);
    if (ep) equip(ep);
}

static void connect_some(void) {
    struct object *one = some(EP), *pep = some(PEP);
    size_t len = one_in(4) ? draw(64) : 0;
    if (pep && one_in(16)) CALL(fi_reject((struct fid_pep *)pep->fid, some_fid(), some_memory(len), len));
    if (!one) return;
    struct fid_ep *ep = (struct fid_ep *)one->fid;
    CALL(fi_connect(ep, some_place(0), some_memory(len), len));
    if (one_in(8)) CALL(fi_accept(ep, some_memory(len), len));
    if (one_in(32)) CALL(fi_shutdown(ep, one_in(8) ? some_flags() : 0));
}

/* A request becomes an endpoint, is sent away, or forgotten. */
static void requested(struct fi_info *info) {
    struct object *pep = some(PEP), *made = NULL;
    if (one_in(8) && pep) CALL(fi_reject((struct fid_pep *)pep->fid, info->handle, "no", 2));
    if (!one_in(8)) made = open_endpoint_of(info, 0);
    if (made) CALL(fi_accept((struct fid_ep *)made->fid, NULL, 0));
    fi_freeinfo(info);
}

static void read_events(void) {
    struct object *one = some(EQ);
    if (!one) return;
    struct fid_eq *eq = (struct fid_eq *)one->fid;
    struct {
        struct fi_eq_cm_entry entry;
        char data[64];
    } event = {0};
    struct fi_eq_err_entry error = {0};
    uint32_t kind = 0;
    size_t len = one_in(8) ? draw(sizeof event) : sizeof event;
    int looks = one_in(16);
    long long read = one_in(4) ? CALL(fi_eq_sread(eq, &kind, &event, len, (int)draw(3), looks ? FI_PEEK : 0))
                               : CALL(fi_eq_read(eq, &kind, &event, len, looks ? FI_PEEK | UNKNOWN : 0));
    connections += read > 0 && kind == FI_CONNECTED;
    /* What is only looked at is not this program's yet. */
    if (read >= (long long)sizeof event.entry && kind == FI_CONNREQ && !looks) requested(event.entry.info);
    if (read == -FI_EAVAIL || one_in(16)) CALL(fi_eq_readerr(eq, &error, one_in(8) ? FI_PEEK : 0));
    if (one_in(8)) CALL(fi_eq_write(eq, (uint32_t)draw(4) + 100, memory, draw(100), one_in(8) ? some_flags() : 0));
}

static void read_completions(void) {
    /* The longest entry of any format. */
    struct fi_cq_tagged_entry entries[8];
    static const size_t lens[] = {sizeof(struct fi_cq_entry), sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry),
        sizeof(struct fi_cq_data_entry), sizeof(struct fi_cq_tagged_entry)};
    struct object *one = some(CQ);
    if (!one) return;
    struct fid_cq *cq = (struct fid_cq *)one->fid;
    struct fi_cq_err_entry error = {0};
    fi_addr_t sources[8];
    size_t count = draw(9);
    long long read = one_in(4)   ? CALL(fi_cq_sread(cq, entries, count, NULL, (int)draw(3)))
                     : one_in(2) ? CALL(fi_cq_readfrom(cq, entries, count, one_in(4) ? NULL : sources))
                                 : CALL(fi_cq_read(cq, entries, count));
    size_t format = one->cq.format <= FI_CQ_FORMAT_TAGGED ? one->cq.format : 0;
    for (long long at = 0; at < read; at++)
        completed(((struct fi_cq_entry *)((char *)entries + (size_t)at * lens[format]))->op_context);
    if ((read == -FI_EAVAIL || one_in(16)) && CALL(fi_cq_readerr(cq, &error, 0)) == 1) {
        completed(error.op_context);
        errors++;
    }
    if (one_in(16)) CALL(fi_cq_signal(cq));
}

static void count_some(void) {
    struct object *one = some(CNTR);
    if (!one) return;
    struct fid_cntr *cntr = (struct fid_cntr *)one->fid;
    if (one_in(4)) CALL(fi_cntr_set(cntr, some_number()));
    if (one_in(4)) CALL(fi_cntr_adderr(cntr, some_number()));
    CALL(fi_cntr_wait(cntr, some_number(), (int)draw(3)) % 256);
    (void)fi_cntr_read(cntr), (void)fi_cntr_readerr(cntr);
}

static void address_some(void) {
    struct object *one = some(AV);
    if (!one) return;
    struct fid_av *av = (struct fid_av *)one->fid;
    fi_addr_t numbers[8] = {0};
    char text[64];
    size_t len = draw(64);
    uint64_t count = draw(8);
    struct sockaddr_in to[8];
    for (int at = 0; at < 8; at++) do to[at] = *some_place(1); while (!to[at].sin_port && !one_in(64));
    CALL(fi_av_insert(av, to, count, one_in(4) ? NULL : numbers, one_in(16) ? some_flags() : 0, NULL));
    CALL(fi_av_lookup(av, draw(8), to, &len));
    if (one_in(8)) CALL(fi_av_insertsvc(av, host(), "1", numbers, 0, NULL));
    if (one_in(8)) CALL(fi_av_insertsym(av, host(), draw(3), "1", draw(3), one_in(4) ? NULL : numbers, one_in(16) ? some_flags() : 0, NULL));
    if (one_in(4)) CALL(fi_av_remove(av, one_in(8) ? NULL : numbers, draw(2), one_in(16) ? some_flags() : 0));
    len = draw(sizeof text);
    (void)fi_av_straddr(av, some_place(1), one_in(4) ? NULL : text, &len);
}

static void message(void) {
    struct object *one = some(EP);
    if (!one) return;
    struct fid_ep *ep = (struct fid_ep *)one->fid;
    size_t len = some_len();
    void *buffer = some_memory(len), *desc = some_descriptor(one->is_datagram);
    fi_addr_t peer = one_in(8) ? some_number() : draw(4);
    uint64_t tag = draw(4), ignore = one_in(2) ? 0 : draw(4), data = some_number();
    struct iovec iov[4] = {{buffer, len}, {memory, draw(64)}, {NULL, 0}, {memory + 64, 8}};
    void *descs[4] = {desc, some_descriptor(0), NULL, desc};
    size_t count = one_in(4) ? draw(5) : 1;
    struct fi_msg msg = {iov, one_in(2) ? descs : NULL, count, peer, context(one), data};
    struct fi_msg_tagged tagged = {iov, one_in(2) ? descs : NULL, count, peer, tag, ignore, msg.context, data};
    uint64_t flags = some_flags();
    if (one_in(2)) peer = FI_ADDR_UNSPEC;
    switch (draw(14)) {
    case 0: case 1: POST(fi_recv(ep, buffer, len, desc, peer, msg.context)); break;
    case 2: POST(fi_recvmsg(ep, &msg, flags)); break;
    case 3: POST(fi_recvv(ep, iov, descs, count, peer, msg.context)); break;
    case 4: POST(fi_send(ep, buffer, len, desc, msg.addr, msg.context)); break;
    case 5: POST(fi_sendmsg(ep, &msg, flags)); break;
    case 6: POST(fi_senddata(ep, buffer, len, desc, data, msg.addr, msg.context)); break;
    case 7: operations[last_operation].is_outstanding = 0; CALL(fi_inject(ep, buffer, len, msg.addr)); break;
    case 8: operations[last_operation].is_outstanding = 0; CALL(fi_tinject(ep, buffer, len, msg.addr, tag)); break;
    case 9: case 10: POST(fi_trecv(ep, buffer, len, desc, peer, tag, ignore, msg.context)); break;
    case 11: POST(fi_trecvmsg(ep, &tagged, flags)); break;
    case 12: POST(fi_tsend(ep, buffer, len, desc, msg.addr, tag, msg.context)); break;
    default: POST(fi_tsendmsg(ep, &tagged, flags)); break;
    }
    if (one_in(8)) CALL(fi_cancel(&ep->fid, &operations[draw(posted % CONTEXTS + 1) % CONTEXTS]));
}

static void one_sided(void) {
    struct object *one = some(EP);
    if (!one) return;
    struct object *to = some_of(MR, one->is_datagram);
    struct fid_ep *ep = (struct fid_ep *)one->fid;
    size_t len = one_in(2) ? draw(64) : some_len(), count;
    void *buffer = some_memory(len), *desc = some_descriptor(one->is_datagram);
    uint64_t key = to && !one_in(8) ? fi_mr_key((struct fid_mr *)to->fid) : some_number();
    uint64_t at = one_in(8) ? some_number() : (uintptr_t)some_memory(64);
    fi_addr_t peer = one_in(8) ? some_number() : draw(4);
    enum fi_datatype type = (enum fi_datatype)draw(24);
    enum fi_op op = (enum fi_op)draw(24);
    struct iovec iov[2] = {{buffer, len}, {memory, 8}};
    struct fi_rma_iov remote[2] = {{at, len, key}, {at, 8, key}};
    struct fi_msg_rma rma = {iov, one_in(2) ? &desc : NULL, 1, peer, remote, one_in(8) ? draw(3) : 1, context(one), 7};
    switch (draw(8)) {
    case 0: POST(fi_write(ep, buffer, len, desc, peer, at, key, rma.context)); break;
    case 1: POST(fi_writemsg(ep, &rma, some_flags())); break;
    case 2: POST(fi_writedata(ep, buffer, len, desc, 7, peer, at, key, rma.context)); break;
    case 3: POST(fi_read(ep, buffer, len, desc, peer, at, key, rma.context)); break;
    case 4: POST(fi_readmsg(ep, &rma, some_flags())); break;
    case 5: POST(fi_atomic(ep, memory, draw(3), NULL, peer, at, key, type, op, rma.context)); break;
    case 6: POST(fi_fetch_atomic(ep, memory, 1, NULL, memory + 64, NULL, peer, at, key, type, op, rma.context)); break;
    default:
        POST(fi_compare_atomic(ep, memory, 1, NULL, memory + 64, NULL, memory + 128, NULL, peer, at, key, type, op,
                               rma.context));
    }
    CALL(fi_fetch_atomicvalid(ep, type, op, &count));
}

static void command_some(void) {
    uint64_t argument[8] = {some_flags(), some_number()};
    struct object *ep = some(EP);
    struct fid *fids[3] = {some_fid(), some_fid(), some_fid()};
    size_t value = some_number(), len = one_in(2) ? sizeof value : draw(sizeof value);
    CALL(fi_control(some_fid(), (int)draw(24), one_in(4) ? NULL : argument));
    CALL(fi_trywait(fabric, fids, (int)draw(4)));
    if (!ep) return;
    CALL(fi_setopt(ep->fid, (int)draw(2), (int)draw(6), &value, len));
    CALL(fi_getopt(ep->fid, (int)draw(2), (int)draw(6), &value, &len));
}

static int close_one(int class, struct object *one) {
    if (CALL(fi_close(one->fid)) != 0) return 0;
    /* Nothing is heard of what it posted. */
    if (class == EP)
        for (int at = 0; at < CONTEXTS; at++)
            if (operations[at].endpoint == one->number) operations[at].is_outstanding = 0;
    one->fid = NULL;
    return 1;
}

static void close_some(void) {
    int class = one_in(3) ? EP : (int)draw(CLASSES);
    struct object *one = some(class);
    if (one) close_one(class, one);
}

static void step(void) {
    static void (*const calls[])(void) = {open_queue, open_small, open_region, open_endpoint, open_passive, equip_some,
        name_some, connect_some, connect_some, read_events, read_events, read_events, read_completions,
        read_completions, read_completions, count_some, address_some, address_some, message, message, message, message, message,
        message, message, message, message, message, one_sided, one_sided, one_sided, command_some};
    alarm(PATIENCE);
    if (one_in(100)) of_discovery();
    else if (one_in(60)) close_some();
    else calls[draw(sizeof calls / sizeof *calls)]();
}

/* Objects enough for the rest to be of use. */
static void begin(void) {
    for (int round = 0; round < 40; round++) open_queue(), open_small(), open_region();
    for (int round = 0; round < 12; round++) open_passive(), open_endpoint(), connect_some();
}

/* Everything, in whatever order lets it close. */
static void close_all(void) {
    for (int pass = 0; pass < 3; pass++)
        for (int class = CLASSES; class-- > 0;)
            for (int at = 0; at < MANY; at++)
                if (objects[class][at].fid) {
                    alarm(PATIENCE);
                    if (!close_one(class, &objects[class][at]) && pass == 2) failures++, show("it does not close");
                }
    for (int kind = 0; kind < 2; kind++) GIVES(fi_close(&domains[kind]->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
}

int main(int count, char **arguments) {
    seed = count > 1 ? strtoull(arguments[1], NULL, 10) : (uint64_t)time(NULL) * 1000003 ^ (uint64_t)getpid();
    state = seed;
    uint64_t steps = count > 2 ? strtoull(arguments[2], NULL, 10) : 5000;
    signal(SIGALRM, hangs);
    /* What is said stays said, whatever the end is. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int kind = 0; kind < 2; kind++) infos[kind] = info_of(kind ? FI_EP_RDM : FI_EP_MSG);
    NEEDS(fi_fabric(infos[0]->fabric_attr, &fabric, NULL));
    for (int kind = 0; kind < 2; kind++) NEEDS(fi_domain(fabric, infos[kind], &domains[kind], NULL));
    for (int at = 0; at < 8; at++)
        places[at / 4][at % 4] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(host())};
    begin();
    while (steps-- > 0 && !failures) step();
    close_all();
    for (int kind = 0; kind < 2; kind++) fi_freeinfo(infos[kind]);
    printf("random %llu: %u calls, %lu connections, %lu completions, %lu of them errors, %d unexpected\n",
           (unsigned long long)seed, traced, connections, completions, errors, failures);
    return failures > 0;
}
