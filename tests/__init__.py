import signal
import threading

if threading.current_thread() is threading.main_thread():
    # A suite in the background, or under nohup, ignores these; what its tests start, and interrupt, is not to.
    for _number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(_number) == signal.SIG_IGN:
            signal.signal(_number, lambda _signal, _frame: None)
