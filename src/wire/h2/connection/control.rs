//! Frames that change the connection's state: RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE. Their
//! lengths have been checked.

use super::receive::{SETTING_BYTES, Violation};
use super::{Connection, Encoder, Role};
use crate::wire::h2::frame::{self, ACK, FRAME_BYTES_MAX, Head, Kind, WINDOW_BYTES_MAX, setting};
use crate::wire::h2::{ErrorCode, Event, Problem, StreamId};

impl Connection {
    pub(super) fn reset_by_peer(&mut self, head: Head, payload: &[u8]) -> Option<Event<'static>> {
        let stream = StreamId(head.stream);
        let code = ErrorCode(frame::number(payload));
        self.streams.remove(&stream).map(|_| Event::Reset { stream, code })
    }

    pub(super) fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Violation> {
        if head.has(ACK) {
            return Ok(());
        }
        self.peer.settings_seen = true;
        for entry in payload.chunks_exact(SETTING_BYTES) {
            self.setting(u16::from_be_bytes([entry[0], entry[1]]), frame::number(&entry[2..]))?;
        }
        frame::put(Kind::SETTINGS, ACK, 0, &[], self.output.tail());
        self.pump();
        Ok(())
    }

    fn setting(&mut self, id: u16, got: u32) -> Result<(), Violation> {
        let out_of_range =
            |code, name, expected| Err((code, Problem::Setting { name, got, expected }));
        match id {
            setting::HEADER_TABLE_SIZE if self.encoder == Encoder::Initial => {
                self.encoder = Encoder::UpdateDue;
            }
            setting::ENABLE_PUSH if got > self.push_max() => {
                return out_of_range(ErrorCode::PROTOCOL_ERROR, "ENABLE_PUSH", "0");
            }
            setting::MAX_CONCURRENT_STREAMS => self.peer.streams_max = got,
            setting::INITIAL_WINDOW_SIZE => {
                if i64::from(got) > WINDOW_BYTES_MAX {
                    let (code, name) = (ErrorCode::FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE");
                    return out_of_range(code, name, "at most 2147483647");
                }
                let change = i64::from(got) - i64::from(self.peer.window_bytes_initial);
                self.peer.window_bytes_initial = got;
                for stream in self.streams.values_mut() {
                    stream.send_window.grow(change)?;
                }
            }
            setting::MAX_FRAME_SIZE => {
                if !(FRAME_BYTES_MAX..1 << 24).contains(&got) {
                    let (code, name) = (ErrorCode::PROTOCOL_ERROR, "MAX_FRAME_SIZE");
                    return out_of_range(code, name, "16384 to 16777215");
                }
                self.peer.frame_bytes_max = got;
            }
            _ => {}
        }
        Ok(())
    }

    /// A server must not allow push; a client may, without effect (RFC 9113 section 6.5.2).
    fn push_max(&self) -> u32 {
        match self.role {
            Role::Client => 0,
            #[cfg(feature = "devices")]
            Role::Server => 1,
        }
    }

    pub(super) fn go_away(&mut self, payload: &[u8]) -> Event<'static> {
        let last = frame::number(payload) & 0x7fff_ffff;
        let code = ErrorCode(frame::number(&payload[4..]));
        match self.role {
            Role::Client => {
                self.going_away = true;
                self.streams.retain(|stream, _| {
                    let refused = stream.0 > last;
                    if refused {
                        self.due.push_back(Event::Refused { stream: *stream });
                    }
                    !refused
                });
            }
            // It is about streams of ours, and there are none.
            #[cfg(feature = "devices")]
            Role::Server => {}
        }
        Event::GoAway { code, debug: String::from_utf8_lossy(&payload[8..]).into_owned() }
    }

    pub(super) fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Violation> {
        let increment = frame::number(payload) & 0x7fff_ffff;
        if increment == 0 {
            return Err((ErrorCode::PROTOCOL_ERROR, Problem::WindowUpdateZero));
        }
        if head.stream == 0 {
            self.send_window.grow(i64::from(increment))?;
        } else if let Some(stream) = self.streams.get_mut(&StreamId(head.stream)) {
            stream.send_window.grow(i64::from(increment))?;
        }
        self.pump();
        Ok(())
    }
}
