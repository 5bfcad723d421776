//! Bytes that wait for the socket: appended at one end, taken from the other.

use crate::limits::CRI_BUFFER_KEPT_BYTES;

/// The callers that append keep the bound; see `Connection`.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// For appending only.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn sent(&mut self, count: usize) {
        assert!(count <= self.len(), "no more can be sent than was waiting");
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            self.bytes.shrink_to(CRI_BUFFER_KEPT_BYTES);
        } else if self.sent >= self.bytes.len() / 2 {
            // Moving at most as many bytes as were sent keeps the cost linear.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_buffer_keeps_little_of_what_a_long_request_took() {
        for (bytes, keeps_max) in [
            (64 * CRI_BUFFER_KEPT_BYTES, CRI_BUFFER_KEPT_BYTES),
            (CRI_BUFFER_KEPT_BYTES, CRI_BUFFER_KEPT_BYTES),
        ] {
            let mut output = Output::default();
            output.tail().reserve_exact(bytes);
            output.tail().resize(bytes, 0);
            output.sent(bytes - 1);
            output.sent(1);
            assert_eq!((output.len(), output.bytes.capacity()), (0, keeps_max), "{bytes}");
        }
    }
}
