//! A fake runtime: CRI v1 on a unix socket, answered from memory at once.
//!
//! It has a real runtime's rules (names must be free, containers need a sandbox) and no event
//! stream, as containerd 1.6. Its HTTP/2 is the minimum for the project's client.

mod http2;
mod state;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http2::Server;
use state::State;

/// How it answers. Its objects do not change with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mood {
    /// As a runtime.
    Kind,
    /// With bytes that are not HTTP/2.
    Noise,
    /// With replies that begin, grow and never end.
    Endless,
    /// With lists of as many empty items as possible, of two bytes each.
    Hollow,
    /// With settings and pings that need an answer.
    Chatter,
    /// With lists of its objects and of thousands of foreign pods.
    Crowd,
}

/// All hostile ones.
pub const UNKIND: [Mood; 5] =
    [Mood::Noise, Mood::Endless, Mood::Hollow, Mood::Chatter, Mood::Crowd];

/// A running one; it lives as long as this process.
pub struct Fake {
    socket: PathBuf,
    /// Objects outlive a connection.
    state: Arc<Mutex<State>>,
    mood: Arc<AtomicU8>,
}

impl Fake {
    /// Listens, and answers in a thread of its own.
    pub fn start(socket: PathBuf) -> Fake {
        let listener = UnixListener::bind(&socket)
            .unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
        let state = Arc::new(Mutex::new(State::default()));
        let served = state.clone();
        let mood = Arc::new(AtomicU8::new(Mood::Kind as u8));
        let moods = mood.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                serve(connection, &served, &moods);
            }
        });
        Fake { socket, state, mood }
    }

    /// Its state, to prepare or count objects.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how it answers.
    pub fn turn(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// Bytes of a reply that does not end: as many as a stream's window allows.
const HEAP: usize = 900 << 10;
/// Items of a hollow list.
const HOLLOW: usize = 60_000;
/// Items of a foreign list: about as many as the smallest agent accepts, and as large as a stream's
/// window allows.
const CROWD: usize = 1_800;
/// Pings for one request.
const CHATTER: usize = 50_000;

/// Serves until the client closes.
fn serve(mut connection: UnixStream, state: &Mutex<State>, mood: &AtomicU8) {
    let mut server = Server::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(count) = connection.read(&mut buffer) else { return };
        if count == 0 {
            return;
        }
        for (stream, path, message) in server.receive(&buffer[..count]) {
            let mood = mood.load(Ordering::SeqCst);
            if mood == Mood::Noise as u8 {
                let _ = connection.write_all(&buffer);
                return;
            } else if mood == Mood::Endless as u8 {
                server.begin(stream, HEAP);
            } else if mood == Mood::Hollow as u8 {
                server.answer(stream, Ok([0x0a, 0].repeat(HOLLOW)));
            } else if mood == Mood::Chatter as u8 {
                server.chatter(CHATTER);
            } else {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let mut answer = state.answer(&path, &message);
                if mood == Mood::Crowd as u8
                    && let Ok(list) = &mut answer
                {
                    // Concatenated messages are one message.
                    list.extend(state::crowd(&path, CROWD));
                }
                server.answer(stream, answer);
            }
        }
        let output = server.take_output();
        if connection.write_all(&output).is_err() {
            return;
        }
    }
}
