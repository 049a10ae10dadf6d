//! The order of operations of one send queue, as the contract's table "Order at the target" has it.
//!
//! | first ↓ then → | send | write | read | atomic |
//! |---|---|---|---|---|
//! | send, write | in order | in order | in order | in order |
//! | read, atomic | fence | fence | fence | fence |
//!
//! The contract also keeps reads in order among themselves. That is about the moment when each looks at the target,
//! and two looks at one place leave nothing that could show it; where their bytes land here, it promises nothing.

/// An operation: the end that posted it, and its number in that end's send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpId {
    pub(super) end: usize,
    pub(super) index: usize,
}

/// What decides the order of an operation.
#[derive(Clone, Copy, Debug)]
struct OrderRule {
    /// It takes effect before whatever follows: a send or a write.
    first: bool,
    /// It waits for every earlier read and atomic.
    fence: bool,
}

/// The send queues of all ends, as far as order goes.
#[derive(Debug, Default)]
pub(super) struct Order(Vec<Vec<OrderRule>>);

impl Order {
    pub(super) fn new(ends: usize) -> Self {
        Order(vec![Vec::new(); ends])
    }

    pub(super) fn push(&mut self, end: usize, first: bool, fence: bool) -> OpId {
        self.0[end].push(OrderRule { first, fence });
        OpId { end, index: self.0[end].len() - 1 }
    }

    /// Whether both are of one queue, and `a` takes effect before `b` in any case: it is a send or write, or `b`
    /// has a fence, or a send or write between them has one.
    pub(super) fn before(&self, a: OpId, b: OpId) -> bool {
        let queue = &self.0[a.end];
        a.end == b.end
            && a.index < b.index
            && (queue[a.index].first
                || queue[b.index].fence
                || queue[a.index + 1..b.index].iter().any(|link| link.fence && link.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_table_of_the_contract() {
        let mut order = Order::new(2);
        let read = order.push(0, false, false);
        let write = order.push(0, true, false);
        let atomic = order.push(0, false, false);
        let fenced_read = order.push(0, false, true);
        let last = order.push(0, true, false);
        assert!(!order.before(read, write), "a read is overtaken");
        assert!(order.before(write, atomic), "a write is not");
        assert!(order.before(read, fenced_read) && order.before(atomic, fenced_read));
        assert!(!order.before(read, last), "the fence was the read's, which is overtaken itself");
        let fenced = order.push(0, true, true);
        let behind = order.push(0, false, false);
        assert!(order.before(read, fenced) && order.before(read, behind));
        assert!(!order.before(write, read) && !order.before(write, write));
        let other = order.push(1, true, true);
        assert!(!order.before(write, other), "endpoints have no order");
    }
}
