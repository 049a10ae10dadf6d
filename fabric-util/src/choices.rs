//! The bytes of a fuzzer as choices, for tests.

/// Choices, one after the other; behind the last byte all of them are zero.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// By these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices(bytes)
    }

    /// Whether there are no more bytes.
    pub fn are_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    /// The next eight bytes, less significant ones first.
    pub fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number below this one, which is not zero, by as few bytes as that takes.
    pub fn below(&mut self, bound: usize) -> usize {
        let mut number = usize::from(self.byte());
        if bound > 1 << 8 {
            number |= usize::from(self.byte()) << 8;
        }
        if bound > 1 << 16 {
            number |= usize::from(self.byte()) << 16;
        }
        number % bound
    }

    /// True for one byte of so many, which is not zero.
    pub fn once_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// The next bytes, so many if they are there.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        now
    }
}
