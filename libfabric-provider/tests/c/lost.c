/* The process of a peer is killed by signal 9 amid traffic. Whatever is outstanding with it ends within a bound, each operation
 * once, and with an error unless it was done before; other peers notice nothing; another process may come to its address.
 *
 *     lost [ROUNDS]
 */
#include "lost.h"

/* Goes on with all peers until the victim has been seen to be gone, and nothing is outstanding with it. */
static void lose(struct peer *victim, struct peer *bystander, int how) {
    struct operation *first = &operations[posted];
    double until, killed;
    int ended[2] = {0}, down = 0, outstanding;
    exchange(victim, 1);
    until = now() + 0.005 * (double)(1 + draw(20));
    if (how == WAITS) {
        GIVES(receive(victim, victim->number, ANY_TAG), 0);
        GIVES(receive(victim, victim->number, UNTAGGED), 0);
        usleep(50000);
    }
    while (how == BUSY && (now() < until || posted < 100)) {
        for (int burst = 0; burst < 20 && victim->outstanding < 400; burst++)
            if (post(victim) == -FI_EAGAIN) break;
        take(0);
        if (one_in(20)) exchange(bystander, 1);
    }
    outstanding = victim->outstanding;
    killed = now();
    kill(victim->pid, SIGKILL);
    waitpid(victim->pid, NULL, 0);
    while (victim->outstanding > 0 || (how == BUSY && !down)) {
        if (how == BUSY && !down) down = post(victim) == DOWN;
        take(1);
        if (one_in(20)) exchange(bystander, 1);
        if (now() > killed + BOUND) break;
    }
    GIVES(victim->outstanding, 0);
    show(victim);
    for (struct operation *one = first; one < &operations[posted]; one++)
        if (one->peer == victim) ended[one->error != 0]++;
    printf("%s, %s: %d outstanding; after %.0f ms all have ended, %d well and %d not\n", kind == FI_EP_MSG ? "messages" : "datagrams",
           how == BUSY ? "busy" : "waiting", outstanding, 1e3 * (now() - killed), ended[0], ended[1]);
    for (int tries = 0; tries < 50; tries++) GIVES(post(victim), DOWN);
}

static void of_datagrams(int how) {
    struct peer victim = start(), bystander = start(), successor = start();
    struct sockaddr_in nowhere = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(host())};
    int same_place = one_in(2);
    open_domain(FI_EP_RDM);
    open_datagram_endpoint(NULL);
    meet(&victim, &nowhere);
    meet(&bystander, &nowhere);
    /* From any peer: the end of one is not theirs. */
    for (int count = 0; count < 10; count++) GIVES(receive(&bystander, FI_ADDR_UNSPEC, ANY_TAG), 0);
    lose(&victim, &bystander, how);
    GIVES(bystander.outstanding, 10);
    for (int count = 0; count < 10; count++) send_to(&bystander, ANY_TAG);
    finish(&bystander);
    exchange(&bystander, 100);
    /* The number is free, and the address. */
    fi_addr_t number = victim.number;
    GIVES(fi_av_remove(av, &number, 1, 0), 0);
    meet(&successor, same_place ? &victim.hello.name : &nowhere);
    GIVES(successor.number, number);
    exchange(&successor, 100);
    exchange(&bystander, 100);
    end_peer(&bystander);
    end_peer(&successor);
    close_all();
}

static void of_messages(int how) {
    struct peer victim = start(), bystander = start(), successor = start();
    struct sockaddr_in nowhere = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(host())};
    open_domain(FI_EP_MSG);
    connect_to(&victim, &nowhere);
    connect_to(&bystander, &nowhere);
    lose(&victim, &bystander, how);
    next_event(victim.side.eq, FI_SHUTDOWN);
    exchange(&bystander, 100);
    connect_to(&successor, &victim.hello.name);
    exchange(&successor, 100);
    end_peer(&bystander);
    end_peer(&successor);
    close_side(&victim);
    close_side(&bystander);
    close_side(&successor);
    close_all();
}

/* In a process of its own: its peers are made before it has threads. */
static int round_of(void (*of)(int), int how) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        failures = 0;
        state = (uint64_t)getpid() * 1000003 ^ (uint64_t)time(NULL);
        of(how);
        fflush(stdout);
        exit(failures != 0);
    }
    waitpid(pid, &status, 0);
    return status;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 4;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int round = 0; round < rounds && !failures; round++)
        for (int how = BUSY; how <= WAITS; how++) {
            GIVES(round_of(of_datagrams, how), 0);
            GIVES(round_of(of_messages, how), 0);
        }
    printf("%d unexpected\n", failures);
    return failures != 0;
}
