//! Bytes in one direction: what one end writes the other reads, in order.

use std::io::{self, ErrorKind};

use fabric_core::memory;
use fabric_util::stream::IoVec;
use fabric_util::sync::Mutex;

/// Bytes that a pipe holds; then the writer waits until all are read.
const CAPACITY: usize = 256 << 10;

/// Bytes that were written and not read yet.
#[derive(Default)]
pub(crate) struct Pipe(Mutex<PipeState>);

#[derive(Default)]
struct PipeState {
    bytes: Vec<u8>,
    /// How many of them were read.
    read: usize,
    /// The writer has closed: behind these bytes is the end.
    ended: bool,
    /// The reader has closed: nothing is read any more.
    broken: bool,
}

impl Pipe {
    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock`: the pipe is full. `BrokenPipe`: the reader has closed.
    ///
    /// # Safety
    /// As [`memory::load`] for each run.
    pub(crate) unsafe fn write(&self, runs: &[IoVec]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let before = state.bytes.len();
        for &(base, len) in runs {
            let now = len.min(CAPACITY.saturating_sub(state.bytes.len()));
            // SAFETY: the caller's promise.
            unsafe { memory::append(base, now, &mut state.bytes) };
        }
        match state.bytes.len() - before {
            0 => Err(ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    /// Reads as much as there is; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is there yet.
    ///
    /// # Safety
    /// As [`memory::store`] for each run.
    pub(crate) unsafe fn read(&self, runs: &[IoVec]) -> io::Result<usize> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let before = state.read;
        for &(base, len) in runs {
            let there = &state.bytes[state.read..];
            let now = len.min(there.len());
            // SAFETY: the caller's promise.
            unsafe { memory::store(base, &there[..now]) };
            state.read += now;
        }
        let got = state.read - before;
        if state.read == state.bytes.len() {
            state.bytes.clear();
            state.read = 0;
        }
        match got {
            0 if !state.ended => Err(ErrorKind::WouldBlock.into()),
            got => Ok(got),
        }
    }

    /// The writer closes: the reader comes to an end behind what was written.
    pub(crate) fn end(&self) {
        self.0.lock().ended = true;
    }

    /// Whether nothing will come any more.
    pub(crate) fn has_ended(&self) -> bool {
        let state = self.0.lock();
        state.ended && state.bytes.is_empty()
    }

    /// The reader closes. What was written and not read is lost.
    pub(crate) fn break_off(&self) {
        let mut state = self.0.lock();
        (state.broken, state.read) = (true, 0);
        state.bytes = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(pipe: &Pipe, bytes: &[u8]) -> io::Result<usize> {
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let runs = [one, two].map(|part| (part.as_ptr().cast_mut(), part.len()));
        // SAFETY: live slices, which are only read.
        unsafe { pipe.write(&runs) }
    }

    fn read(pipe: &Pipe, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        // SAFETY: a live buffer of this length.
        let got = unsafe { pipe.read(&[(bytes.as_mut_ptr(), len)]) }?;
        bytes.truncate(got);
        Ok(bytes)
    }

    #[test]
    fn bytes_keep_their_order_and_the_end_comes_behind_them() {
        let pipe = Pipe::default();
        assert_eq!(read(&pipe, 9).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!((write(&pipe, b"abc").unwrap(), write(&pipe, b"de").unwrap()), (3, 2));
        assert_eq!(read(&pipe, 4).unwrap(), b"abcd");
        pipe.end();
        assert_eq!((read(&pipe, 4).unwrap(), read(&pipe, 4).unwrap()), (b"e".to_vec(), vec![]));
    }

    #[test]
    fn a_full_pipe_takes_no_more_and_a_broken_one_says_so() {
        let pipe = Pipe::default();
        assert_eq!(write(&pipe, &vec![7; CAPACITY + 9]).unwrap(), CAPACITY);
        assert_eq!(write(&pipe, b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(read(&pipe, 2 * CAPACITY).unwrap(), vec![7; CAPACITY]);
        assert_eq!(write(&pipe, b"xy").unwrap(), 2);
        pipe.break_off();
        assert_eq!(write(&pipe, b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
