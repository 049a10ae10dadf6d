//! Chains of numbered values in order: what is added last is last, and any can leave at once.

/// A value's neighbours. In a chain each is the next of the one before it, and the first that of the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// The one before it; of the first the last, with [`FIRST`].
    prev: u32,
    next: u32,
}

/// Says of a link that its value is the first of its chain.
const FIRST: u32 = 1 << 31;

/// Where the links of numbered values are. Each value is in one chain at most, and a chain is known by its first value.
/// Numbers are below 2^31.
pub(super) trait Links {
    /// The link of a value; of one that is not there any.
    fn link(&self, at: u32) -> Link;

    /// The link of a value, to change it; `None` of one that is not there.
    fn link_mut(&mut self, at: u32) -> Option<&mut Link>;

    /// Begins a chain with this value.
    #[inline]
    fn begin(&mut self, at: u32) {
        self.set(at, Link { prev: FIRST | at, next: at });
    }

    /// Adds a value at the end of the chain that `first` begins.
    #[inline]
    fn append(&mut self, first: u32, at: u32) {
        let last = self.link(first).prev & !FIRST;
        self.set(at, Link { prev: last, next: first });
        self.set_next(last, at);
        self.set_prev(first, FIRST | at);
    }

    /// Takes a value out of its chain.
    #[inline]
    fn unlink(&mut self, at: u32) -> Remaining {
        let Link { prev, next } = self.link(at);
        if next == at {
            return Remaining::Nothing;
        }
        let is_first = prev & FIRST != 0;
        // The first one's `prev` has FIRST and names the last, and so does that of the first one to be. If the next is the
        // first, this is the last.
        let first = if is_first { 0 } else { self.link(next).prev & FIRST };
        self.set_prev(next, prev | first);
        self.set_next(prev & !FIRST, next);
        if is_first { Remaining::First(next) } else { Remaining::SameFirst }
    }

    /// The one after it; `None` after the last.
    #[inline]
    fn next(&self, at: u32) -> Option<u32> {
        let next = self.link(at).next;
        (self.link(next).prev & FIRST == 0).then_some(next)
    }

    #[inline]
    fn set(&mut self, at: u32, link: Link) {
        if let Some(old) = self.link_mut(at) {
            *old = link;
        }
    }

    #[inline]
    fn set_prev(&mut self, at: u32, prev: u32) {
        if let Some(link) = self.link_mut(at) {
            link.prev = prev;
        }
    }

    #[inline]
    fn set_next(&mut self, at: u32, next: u32) {
        if let Some(link) = self.link_mut(at) {
            link.next = next;
        }
    }
}

/// What a chain is, without a value that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remaining {
    /// It has the same first value.
    SameFirst,
    /// The value was the first, and this is it now.
    First(u32),
    /// It was the only one.
    Nothing,
}

/// Links beside the values: for values that are in several chains.
#[derive(Debug, Default)]
pub(super) struct LinkTable(Vec<Link>);

impl LinkTable {
    /// Makes room for values below `end`.
    #[inline]
    pub(super) fn grow(&mut self, end: u32) {
        if self.0.len() < end as usize {
            self.0.resize(end as usize, Link::default());
        }
    }
}

impl Links for LinkTable {
    #[inline]
    fn link(&self, at: u32) -> Link {
        self.0.get(at as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn link_mut(&mut self, at: u32) -> Option<&mut Link> {
        self.0.get_mut(at as usize)
    }
}

/// One chain that begins somewhere, or nowhere.
#[derive(Debug, Default)]
pub(super) struct Chain {
    first: Option<u32>,
}

impl Chain {
    pub(super) fn first(&self) -> Option<u32> {
        self.first
    }

    #[inline]
    pub(super) fn push(&mut self, links: &mut impl Links, at: u32) {
        match self.first {
            Some(first) => links.append(first, at),
            None => {
                links.begin(at);
                self.first = Some(at);
            }
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, links: &mut impl Links, at: u32) {
        match links.unlink(at) {
            Remaining::SameFirst => {}
            Remaining::First(first) => self.first = Some(first),
            Remaining::Nothing => self.first = None,
        }
    }

    /// Its values in order.
    pub(super) fn iter<'a, L: Links>(
        &self,
        links: &'a L,
    ) -> impl Iterator<Item = u32> + use<'a, L> {
        std::iter::successors(self.first, |at| links.next(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        /// Two chains over the same links, beside two lists.
        #[test]
        fn chains_do_as_lists_would(steps in proptest::collection::vec((0..2usize, 0..12u32), 0..200)) {
            let mut links = LinkTable::default();
            links.grow(12);
            let mut chains = [Chain::default(), Chain::default()];
            let mut lists = [Vec::new(), Vec::new()];
            for (list, at) in steps {
                let owner = lists.iter().position(|list: &Vec<u32>| list.contains(&at));
                match owner {
                    None => {
                        chains[list].push(&mut links, at);
                        lists[list].push(at);
                    }
                    Some(owner) => {
                        chains[owner].remove(&mut links, at);
                        lists[owner].retain(|other| *other != at);
                    }
                }
                for (chain, list) in chains.iter().zip(&lists) {
                    prop_assert_eq!(&chain.iter(&links).collect::<Vec<_>>(), list);
                }
            }
        }
    }
}
