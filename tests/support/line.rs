//! A network line that can be cut, and that counts its bytes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// While it is cut, every dial is closed at once.
pub struct Line {
    /// The address to dial.
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    cut: AtomicBool,
    /// Bytes of the dialling end, and of the other end.
    up: AtomicU64,
    down: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
    /// When the last successful dial was accepted.
    taken_at: Mutex<Option<Instant>>,
}

impl Line {
    /// Opens one.
    #[expect(clippy::disallowed_methods, reason = "the time of a dial is a measurement")]
    pub fn open(to: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state: Arc<State> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let taken_at = Instant::now();
                let Ok(far) = TcpStream::connect(to) else { continue };
                if shared.cut.load(Ordering::SeqCst) {
                    continue;
                }
                *lock(&shared.taken_at) = Some(taken_at);
                for up in [true, false] {
                    let (from, into) = if up { (&near, &far) } else { (&far, &near) };
                    let pair = (from.try_clone(), into.try_clone());
                    let (Ok(from), Ok(into)) = pair else { continue };
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || {
                        carry(from, into, if up { &shared.up } else { &shared.down });
                    });
                }
                lock(&shared.open).extend([near, far]);
            }
        });
        Self { address, state }
    }

    /// Cuts or restores it.
    pub fn cut(&self, cut: bool) {
        self.state.cut.store(cut, Ordering::SeqCst);
        if cut {
            for stream in lock(&self.state.open).drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Bytes so far, of the dialling end and of the other end.
    pub fn carried(&self) -> (u64, u64) {
        (self.state.up.load(Ordering::SeqCst), self.state.down.load(Ordering::SeqCst))
    }

    /// When the last successful dial was accepted.
    pub fn taken_at(&self) -> Option<Instant> {
        *lock(&self.state.taken_at)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry(mut from: TcpStream, mut into: TcpStream, count: &AtomicU64) {
    let mut buffer = [0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        count.fetch_add(bytes as u64, Ordering::SeqCst);
        if into.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = into.shutdown(Shutdown::Both);
}
