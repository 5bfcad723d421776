//! Bytes on their way from one socket to another.

use std::io::{self, ErrorKind, Write};

/// What one side has sent and the other has not taken. Empty, it has no memory.
#[derive(Debug, Default)]
pub(in crate::io) struct Pipe {
    bytes: Vec<u8>,
    /// So many of them have left.
    gone: usize,
}

impl Pipe {
    pub(in crate::io) fn len(&self) -> usize {
        self.bytes.len() - self.gone
    }

    pub(in crate::io) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(in crate::io) fn push(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds what `write` appends, which makes room for it.
    pub(in crate::io) fn push_by<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.bytes.drain(..self.gone);
        self.gone = 0;
        write(&mut self.bytes)
    }

    /// Does not let the memory grow for bytes that have left, and grows it by little more than is
    /// needed: what doubles in steps may take twice the bound of a stream.
    fn make_room(&mut self, count: usize) {
        if self.gone > 0 && self.bytes.len() + count > self.bytes.capacity() {
            self.bytes.drain(..self.gone);
            self.gone = 0;
        }
        let needed = self.bytes.len() + count;
        if needed > self.bytes.capacity() {
            let missing = needed.next_multiple_of(STEP_BYTES) - self.bytes.len();
            self.bytes.reserve_exact(missing);
        }
    }

    /// The next bytes, at most so many.
    pub(in crate::io) fn peek(&self, max: usize) -> &[u8] {
        &self.bytes[self.gone..][..self.len().min(max)]
    }

    /// These have left.
    pub(in crate::io) fn forget(&mut self, count: usize) {
        self.gone += count;
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Writes as much as the socket takes; `true`: everything has left.
    pub(in crate::io) fn write_to(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        while !self.is_empty() {
            match socket.write(&self.bytes[self.gone..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.forget(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Memory grows by it.
const STEP_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes at once, and none at every other call.
    struct Slow(Vec<u8>, usize, bool);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_goes_in_comes_out_in_its_order() {
        let (mut pipe, mut slow) = (Pipe::default(), Slow(Vec::new(), 3, false));
        let mut all = Vec::new();
        for round in 0..100_u8 {
            let bytes = vec![round; usize::from(round % 7)];
            all.extend_from_slice(&bytes);
            pipe.push(&bytes);
            pipe.write_to(&mut slow).expect("it takes some");
        }
        while !pipe.write_to(&mut slow).expect("it takes some") {}
        assert_eq!(slow.0, all);
        assert_eq!((pipe.len(), pipe.bytes.capacity()), (0, 0));
    }

    #[test]
    fn it_has_little_more_memory_than_it_needs() {
        let mut pipe = Pipe::default();
        for round in 1..200 {
            pipe.push(&[b'x'; 777]);
            pipe.forget(round % 3 * 111);
            let most = pipe.len() + pipe.gone + STEP_BYTES;
            assert!(pipe.bytes.capacity() < most, "{} for {most}", pipe.bytes.capacity());
        }
    }
}
