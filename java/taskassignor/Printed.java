package taskassignor;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What Python prints, as lines in the log of the application. All of it is read, else Python would wait for that; but
 * neither one line nor the number of lines can fill the memory or the log.
 */
final class Printed {
    private static final Logger log = LoggerFactory.getLogger("taskassignor");
    private static final int LONGEST_LINE = 4_000;
    private static final int MOST_LINES = 1_000;
    private static final long PER_NANOS = TimeUnit.MINUTES.toNanos(1);

    private final InputStream stream;
    private final StringBuilder line = new StringBuilder();
    private long sinceNanos = System.nanoTime();
    private long lines;

    Printed(final InputStream stream) {
        this.stream = stream;
    }

    /** Until the end of the stream. */
    void logAll() {
        try (Reader in = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8))) {
            for (int one = in.read(); one >= 0; one = in.read()) {
                if (one == '\n') {
                    logLine();
                } else if (one != '\r') {
                    line.append((char) one);
                    if (line.length() == LONGEST_LINE) {
                        logLine();
                    }
                }
            }
        } catch (final IOException ended) {
            // With the process.
        }
        if (line.length() > 0) {
            logLine();
        }
    }

    private void logLine() {
        if (System.nanoTime() - sinceNanos > PER_NANOS) {
            sinceNanos = System.nanoTime();
            lines = 0;
        }
        lines++;
        if (lines <= MOST_LINES) {
            log.info("python: {}", line);
        } else if (lines == MOST_LINES + 1) {
            log.warn("python: more than {} lines within a minute: the others are left out.", MOST_LINES);
        }
        line.setLength(0);
    }
}
