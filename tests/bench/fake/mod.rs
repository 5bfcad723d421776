//! A runtime that only pretends: CRI v1 on a unix socket, answered from memory at once.
//!
//! It takes what a real runtime takes (names must be free, containers need a sandbox) and knows no
//! event stream, as containerd 1.6. Its HTTP/2 is what the project's client needs of a server.

mod http2;
mod state;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http2::Server;
use state::State;

/// A running one; it lives as long as this process.
pub struct Fake {
    socket: PathBuf,
    /// What runs outlives a connection.
    state: Arc<Mutex<State>>,
}

impl Fake {
    /// Listens, and answers in a thread of its own.
    pub fn start(socket: PathBuf) -> Fake {
        let listener = UnixListener::bind(&socket)
            .unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
        let state = Arc::new(Mutex::new(State::default()));
        let served = state.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                serve(connection, &served);
            }
        });
        Fake { socket, state }
    }

    /// What it has, for who prepares or counts it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// Until the client hangs up.
fn serve(mut connection: UnixStream, state: &Mutex<State>) {
    let mut server = Server::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(count) = connection.read(&mut buffer) else { return };
        if count == 0 {
            return;
        }
        for (stream, path, message) in server.receive(&buffer[..count]) {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            server.answer(stream, state.answer(&path, &message));
        }
        let output = server.take_output();
        if connection.write_all(&output).is_err() {
            return;
        }
    }
}
