package taskassignor;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.function.Supplier;

/** How long Kafka's own code took: making its inputs and writing its answer do not count. For the benchmarks. */
final class Stopwatch {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static long wallNanos;
    private static long cpuNanos;

    private Stopwatch() { }

    static void reset() {
        wallNanos = 0;
        cpuNanos = 0;
    }

    static void time(final Runnable work) {
        time(() -> {
            work.run();
            return null;
        });
    }

    static <T> T time(final Supplier<T> work) {
        final long cpuStart = THREADS.getCurrentThreadCpuTime();
        final long start = System.nanoTime();
        try {
            return work.get();
        } finally {
            wallNanos += System.nanoTime() - start;
            cpuNanos += THREADS.getCurrentThreadCpuTime() - cpuStart;
        }
    }

    static double millis() {
        return wallNanos / 1e6;
    }

    /** Of the calling thread: without the compiler and the garbage collector. */
    static double cpuMillis() {
        return cpuNanos / 1e6;
    }
}
