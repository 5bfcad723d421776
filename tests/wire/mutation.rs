//! Real servers' bytes, damaged: the result is events or an error, never a panic, and every call
//! ends at most once.

use std::collections::BTreeSet;

use edged::wire::cri::{self, container, image, sandbox};
use edged::wire::grpc::Event;
use edged::wire::hpack;

use crate::replay::exchanges;

const ROUNDS: usize = 20_000;

/// xorshift64*: the same damage every time.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.roll(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.roll(bytes.len());
            match self.roll(5) {
                0 => bytes[at] ^= 1 << self.roll(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.roll(5)],
                2 => bytes.truncate(at),
                3 => drop(bytes.remove(at)),
                _ => {
                    let end = (at + 1 + self.roll(60)).min(bytes.len());
                    let repeated = bytes[at..end].to_vec();
                    let to = self.roll(bytes.len());
                    bytes.splice(to..to, repeated);
                }
            }
        }
    }
}

#[test]
fn damaged_connections_end_in_events_or_an_error() {
    let exchanges = exchanges();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut errors, mut ends) = (0, 0);
    for round in 0..ROUNDS {
        let exchange = &exchanges[round % exchanges.len()];
        let mut bytes = exchange.bytes.clone();
        dice.damage(&mut bytes);
        let mut client = exchange.client();
        let mut failed = false;
        for part in bytes.chunks(1 + dice.roll(400)) {
            failed |= client.receive(part).is_err();
            let count = dice.roll(client.output().len() + 1);
            client.sent(count);
        }
        errors += usize::from(failed);
        let open = client.calls();
        assert!(!failed || open == 0, "an error ends every call");
        client.hangup("end of file");
        let mut ended = BTreeSet::new();
        while let Some(event) = client.poll_event() {
            assert!(!matches!(event, Event::Message(..) | Event::Done(..)), "all are unary");
            assert!(ended.insert(event.key()), "one last event, round {round}");
        }
        assert_eq!(ended.len(), exchange.streams.len() - exchange.cancelled.len());
        ends += ended.len();
    }
    assert!(errors > ROUNDS / 10 && errors < ROUNDS, "{errors} errors");
    assert!(ends > ROUNDS, "{ends} ends");
}

#[test]
fn damaged_header_blocks_are_lists_or_errors() {
    let blocks: Vec<Vec<u8>> = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff",
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        "2000889acac8b21234da8f013000899acac8b5254207317f00",
        "3f0188c0bfbe4003616263036465667f01",
    ]
    .map(crate::golden::hex)
    .to_vec();
    let mut dice = Dice(7);
    for _ in 0..ROUNDS {
        let mut decoder = hpack::Decoder::new(dice.roll(300), 1 + dice.roll(300));
        for _ in 0..4 {
            let mut block = blocks[dice.roll(blocks.len())].clone();
            dice.damage(&mut block);
            if decoder.decode(&block).is_err() {
                break;
            }
        }
    }
}

#[test]
fn damaged_messages_are_messages_or_errors() {
    let samples = crate::cri::samples();
    let mut dice = Dice(11);
    for round in 0..ROUNDS {
        let mut bytes = samples[round % samples.len()].clone();
        dice.damage(&mut bytes);
        let _ = cri::decode::<container::ListContainersRequest>(&bytes);
        let _ = cri::decode::<container::ContainerStatusRequest>(&bytes);
        let _ = cri::decode::<sandbox::PodSandboxStatusRequest>(&bytes);
        let _ = cri::decode::<image::ListImagesRequest>(&bytes);
    }
}
