package taskassignor;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Reads one question per line, writes one answer per line: {"answer": ...} or {"exception": class, "message": text}, and how long Kafka took. */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() { }

    public static void main(final String[] arguments) throws Exception {
        final BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Whatever a library prints must not get between the answers.
        System.setOut(System.err);
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            final ObjectNode reply = JSON.createObjectNode();
            Stopwatch.reset();
            try {
                final JsonNode question = JSON.readTree(line);
                reply.set("answer", Questions.answer(question, JSON.createObjectNode()));
            } catch (final Exception e) {
                reply.put("exception", e.getClass().getSimpleName()).put("message", String.valueOf(e.getMessage()));
            }
            reply.put("millis", Stopwatch.millis()).put("cpuMillis", Stopwatch.cpuMillis());
            answers.println(JSON.writeValueAsString(reply));
        }
    }
}
